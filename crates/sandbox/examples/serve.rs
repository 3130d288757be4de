//! Serves the simulated clouds until it is stopped: `cargo run -p berth-sandbox --example serve -- [SPEED] [STATE-FILE]`.
//! For tries with the clouds' own programs without building all of Berth. Ports and options of clouds come in the environment,
//! as `NAME_PORT` and `NAME_OPTION`; `KUBE_BIN` is the folder with the programs of real control planes.

use berth_sandbox::{Config, Sandbox, registry};
use std::net::{Ipv4Addr, SocketAddr};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut config = Config { state: None, ..Config::default() };
    if let Some(speed) = args.next() {
        config.speed = speed.parse()?;
    }
    config.state = args.next().map(Into::into);
    config.kube_bin = std::env::var_os("KUBE_BIN").map(Into::into);
    for cloud in registry::clouds() {
        let upper = cloud.name.as_str().to_uppercase();
        if let Some(port) = std::env::var(format!("{upper}_PORT")).ok().and_then(|port| port.parse().ok()) {
            config.clouds.insert(cloud.name, SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        }
        for option in cloud.options {
            if let Ok(value) = std::env::var(format!("{upper}_{}", option.name.to_uppercase())) {
                config.options.entry(cloud.name).or_default().insert(option.name, value);
            }
        }
    }
    let sandbox = Sandbox::start(config).await?;
    for (cloud, url) in sandbox.urls() {
        println!("{cloud} {url}");
    }
    println!("kube https://{}", sandbox.kube_addr());
    tokio::signal::ctrl_c().await?;
    sandbox.stop().await;
    Ok(())
}
