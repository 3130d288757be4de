//! Ranges of addresses.

use ipnet::{Ipv4Net, Ipv6Net};
use rand::Rng;

use crate::aws::errors::{Answer, AwsError, fail};
use crate::world::Dice;

/// A range of IPv4; host bits are cleared, as AWS does.
pub fn v4(text: &str, parameter: &str) -> Answer<Ipv4Net> {
    text.parse::<Ipv4Net>().map(|net| net.trunc()).map_err(|_| invalid(text, parameter))
}

pub fn v6(text: &str, parameter: &str) -> Answer<Ipv6Net> {
    text.parse::<Ipv6Net>().map(|net| net.trunc()).map_err(|_| invalid(text, parameter))
}

fn invalid(text: &str, parameter: &str) -> Box<AwsError> {
    let message = format!("Value ({text}) for parameter {parameter} is invalid. This is not a valid CIDR block.");
    AwsError::new(400, "InvalidParameterValue", message)
}

/// VPCs and subnets have between /16 and /28.
pub fn sized(text: &str, code: &'static str) -> Answer<Ipv4Net> {
    let net = v4(text, "cidrBlock")?;
    match (16..=28).contains(&net.prefix_len()) {
        true => Ok(net),
        false => fail(code, format!("The CIDR '{text}' is invalid.")),
    }
}

pub fn overlap(a: &Ipv4Net, b: &Ipv4Net) -> bool {
    a.contains(b) || b.contains(a)
}

/// A /56 as Amazon gives them out.
pub fn amazon_v6(dice: &mut Dice) -> String {
    let (a, b) = (dice.rng().random::<u16>(), dice.rng().random::<u8>());
    format!("2a05:d014:{a:x}:{:x}::/56", u16::from(b) << 8)
}

/// A public address as EC2 gives them out.
pub fn public_v4(dice: &mut Dice) -> String {
    let rng = dice.rng();
    format!("3.{}.{}.{}", rng.random_range(64..=127), rng.random::<u8>(), rng.random_range(1..=254))
}
