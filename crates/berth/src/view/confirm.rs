//! Asks for confirmation before changes, and a second time before data is lost.

use crate::args::{ConfirmArgs, RecreateArgs};
use crate::failure::Failure;
use berth_engine::{Action, Plan, ResourcePlan};
use berth_model::ResourceId;
use std::io::{BufRead, IsTerminal, Write};

/// Returns only if missing objects may be created again. If many are missing at once, a wrong account or an outage is more likely.
pub fn confirm_recreate(plan: &Plan, args: RecreateArgs) -> Result<(), Failure> {
    let Some(much) = plan.much_gone.first().filter(|_| !args.allow_recreate) else { return Ok(()) };
    if !asks() {
        return Err(Failure::new(format!("{much}: making them again has to be allowed; nothing was changed"))
            .help("check the account's token, API address and region, and whether the cloud has an outage")
            .help("if they were deleted and are to be made again, add --allow-recreate"));
    }
    match ask(&format!("{much}. Type `recreate` to make them again: "))?.as_str() {
        "recreate" => Ok(()),
        _ => Err(Failure::new("not confirmed; nothing was changed")),
    }
}

/// What a plan takes away although its annotation protects it. Protection is for anything, also for what could be made again
/// as it was.
pub fn protected(plan: &Plan, is_protected: impl Fn(&ResourceId) -> bool) -> Option<Failure> {
    let resource = plan.resources.iter().find(|r| r.takes_away() && is_protected(&r.id))?;
    let help = "it has the annotation `berth.dev/protect: \"true\"`; take it off and apply, then try again";
    Some(Failure::new(format!("{} is protected: it may not be {}", resource.id, past(resource.action))).help(help))
}

/// Returns only if the plan may be applied.
pub fn confirm(plan: &Plan, args: ConfirmArgs, is_protected: impl Fn(&ResourceId) -> bool) -> Result<(), Failure> {
    let losing: Vec<&ResourcePlan> = plan.resources.iter().filter(|r| loses(r)).collect();
    if let Some(failure) = protected(plan, is_protected) {
        return Err(failure);
    }
    let (asks, place) = (asks(), args.place());
    if !losing.is_empty() && !args.allow_replace {
        if !asks {
            let first = losing[0];
            let more = if losing.len() > 1 { format!(" and {} more", losing.len() - 1) } else { String::new() };
            let flag = if first.action == Action::Delete { "--allow-delete" } else { "--allow-replace" };
            return Err(Failure::new(format!(
                "{}{more} would be {}, which --yes alone does not allow",
                first.id,
                past(first.action)
            ))
            .help(format!("look at the plan, then add {flag}")));
        }
        for resource in &losing {
            let name = &resource.id.name;
            let typed =
                ask(&format!("{place}{} will be {}. Type `{name}` to allow it: ", resource.id, past(resource.action)))?;
            if typed != *name {
                return Err(Failure::new("not confirmed; nothing was changed"));
            }
        }
        return Ok(());
    }
    if args.yes {
        return Ok(());
    }
    if !asks {
        return Err(
            Failure::new("not confirmed, and there is no terminal to ask on; nothing was changed").help("add --yes")
        );
    }
    match is_yes(&ask(&format!("{place}Apply these changes? [y/N] "))?) {
        true => Ok(()),
        false => Err(Failure::new("not confirmed; nothing was changed")),
    }
}

/// Returns only if the user confirms.
pub fn proceed(what: &str, yes: bool) -> Result<(), Failure> {
    confirmed(what, yes, "Go on? [y/N]", is_yes)
}

/// Returns only if everything in a state may be replaced: `--yes`, or the state's name as the answer.
pub fn replace_all(state: &str, yes: bool) -> Result<(), Failure> {
    let what = format!("everything in {state} will be replaced");
    confirmed(&what, yes, &format!("Type `{state}` to allow it:"), |answer| answer == state)
}

fn confirmed(what: &str, yes: bool, question: &str, allows: impl Fn(&str) -> bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !asks() {
        return Err(
            Failure::new(format!("{what}: not confirmed, and there is no terminal to ask on")).help("add --yes")
        );
    }
    match allows(&ask(&format!("{what}. {question} "))?) {
        true => Ok(()),
        false => Err(Failure::new("not confirmed; nothing was changed")),
    }
}

pub fn is_yes(answer: &str) -> bool {
    matches!(answer.to_ascii_lowercase().as_str(), "y" | "yes")
}

fn asks() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Whether carrying it out takes away something that runs or holds data. A firewall that is deleted on request does not.
pub fn loses(resource: &ResourcePlan) -> bool {
    match resource.action {
        Action::Delete => resource.units.iter().any(|u| u.loses_data),
        _ => resource.takes_away(),
    }
}

fn past(action: Action) -> &'static str {
    match action {
        Action::Delete => "deleted",
        Action::Replace => "replaced",
        _ => "partly replaced or removed",
    }
}

pub fn ask(question: &str) -> Result<String, Failure> {
    let mut err = std::io::stderr().lock();
    write!(err, "{question}")?;
    err.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|error| Failure::caused("cannot read the answer", &error))?;
    Ok(line.trim().to_owned())
}
