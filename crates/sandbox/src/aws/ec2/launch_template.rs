//! Launch templates and their versions.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::filter::{Filter, Filters, one};
use super::paging;
use super::resource::{Common, Cx, Names, Resource, kept, page_of, select_ids, shown, time};
use crate::aws::ask::{Ask, Tags};
use crate::aws::errors::{Answer, AwsError, fail};
use crate::clock::SimTime;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaunchTemplate {
    pub common: Common,
    pub name: String,
    pub created_by: String,
    pub default_version: i64,
    /// The number that the latest one got; it stays when that one is deleted.
    pub latest_version: i64,
    pub versions: Vec<Version>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Version {
    pub number: i64,
    pub description: Option<String>,
    /// As it was given, in the names of requests.
    pub data: Value,
    pub created: SimTime,
    pub created_by: String,
}

kept!(LaunchTemplate, "aws.launch_template", launch_templates);

impl Resource for LaunchTemplate {
    const NAMES: Names = Names {
        kind: "launch-template",
        prefix: "lt",
        ids: "LaunchTemplateId",
        set: "launchTemplates",
        not_found: "InvalidLaunchTemplateId.NotFound",
        malformed: "InvalidLaunchTemplateId.Malformed",
        title: "The specified launch template, with template ID {}, does not exist.",
        indexed: &[("launch-template-name", "name")],
    };
    const FILTERS: &'static [Filter<LaunchTemplate>] = &[
        ("launch-template-name", |template, _| one(&template.name)),
        ("create-time", |template, _| one(time(template.common.created))),
    ];

    fn indexes(&self) -> Vec<String> {
        vec![format!("name:{}", self.name)]
    }

    fn show(&self, _: &Cx) -> Value {
        json!({"launchTemplateId": self.common.id, "launchTemplateName": self.name,
               "createTime": time(self.common.created), "createdBy": self.created_by,
               "defaultVersionNumber": self.default_version, "latestVersionNumber": self.latest_version})
    }

    fn facts(&self, _: SimTime) -> Value {
        json!({"name": self.name, "versions": self.versions.len()})
    }
}

impl LaunchTemplate {
    /// By number, `$Latest` or `$Default`.
    pub fn version(&self, wanted: &str) -> Answer<&Version> {
        let number = match wanted {
            "$Latest" => Some(self.latest_version),
            "$Default" => Some(self.default_version),
            text => text.parse().ok(),
        };
        let found = number.and_then(|number| self.versions.iter().find(|version| version.number == number));
        found.ok_or_else(|| {
            let message = format!(
                "Could not find the specified version {wanted} for the launch template with ID {}.",
                self.common.id
            );
            AwsError::new(400, "InvalidLaunchTemplateId.VersionNotFound", message)
        })
    }

    fn show_version(&self, version: &Version) -> Value {
        json!({"launchTemplateId": self.common.id, "launchTemplateName": self.name, "versionNumber": version.number,
               "versionDescription": version.description, "createTime": time(version.created),
               "createdBy": version.created_by, "defaultVersion": version.number == self.default_version,
               "launchTemplateData": show_data(&version.data, "")})
    }
}

/// Requests and answers write the same data with other names: `BlockDeviceMapping` is `blockDeviceMappingSet`.
fn show_data(data: &Value, inside: &str) -> Value {
    let Value::Object(members) = data else {
        return match data {
            Value::Array(items) => items.iter().map(|item| show_data(item, inside)).collect(),
            scalar => scalar.clone(),
        };
    };
    let member = |(name, value): (&String, &Value)| {
        let shown = match (inside, name.as_str(), value.is_array()) {
            ("NetworkInterface", "SecurityGroupId", _) => "groupSet".to_owned(),
            (_, "LicenseSpecification", _) => "licenseSet".to_owned(),
            (_, name, true) => format!("{}Set", lower_first(name)),
            (_, name, false) => lower_first(name),
        };
        let value = show_data(value, name);
        // The one list whose items have a name of their own.
        let value = if shown == "groupSet" { json!({"#groupId": value}) } else { value };
        (shown, value)
    };
    Value::Object(members.iter().map(member).collect::<Map<_, _>>())
}

fn lower_first(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

fn check_name(name: &str) -> Answer<()> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "()./_-".contains(c);
    match (3..=128).contains(&name.len()) && name.chars().all(allowed) {
        true => Ok(()),
        false => fail(
            "InvalidLaunchTemplateName.MalformedException",
            "A launch template name must be between 3 and 128 characters, and may contain letters, numbers, and the following characters: - ( ) . / _",
        ),
    }
}

/// The template that a call names by its id or its name.
pub fn find<'a>(ask: &'a Ask<'_, '_>) -> Answer<&'a LaunchTemplate> {
    match (ask.input.text("LaunchTemplateId"), ask.input.text("LaunchTemplateName")) {
        (Some(_), Some(_)) => fail(
            "InvalidParameterCombination",
            "A request must contain either a launch template ID or a launch template name, but not both.",
        ),
        (Some(id), None) => Cx::of(ask).require::<LaunchTemplate>(id),
        (None, Some(name)) => by_name(&Cx::of(ask), name),
        (None, None) => fail(
            "MissingParameter",
            "Either a launch template ID or a launch template name must be specified in the request.",
        ),
    }
}

pub fn by_name<'a>(cx: &Cx<'a>, name: &str) -> Answer<&'a LaunchTemplate> {
    let mut named = cx.store.launch_templates.find(&format!("name:{name}"));
    let found = named.find(|template| template.common.region == cx.region);
    found.ok_or_else(|| {
        let message = format!("The specified launch template, with template name {name}, does not exist.");
        AwsError::new(400, "InvalidLaunchTemplateName.NotFoundException", message)
    })
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let name = ask.input.required("LaunchTemplateName")?.to_owned();
    check_name(&name)?;
    if by_name(&Cx::of(ask), &name).is_ok() {
        return fail("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.");
    }
    let Some(data) = ask.input.at("LaunchTemplateData").cloned() else {
        return Err(AwsError::missing("LaunchTemplateData"));
    };
    check_data(&data)?;
    let common = Common::asked(ask, "lt", "launch-template")?;
    let created_by = ask.principal.arn.clone();
    let description = ask.input.text("VersionDescription").map(str::to_owned);
    let first = Version { number: 1, description, data, created: ask.now(), created_by: created_by.clone() };
    let template =
        LaunchTemplate { common, name, created_by, default_version: 1, latest_version: 1, versions: vec![first] };
    let answer = json!({"launchTemplate": shown(&template, &Cx::of(ask))});
    ask.store().ec2.launch_templates.insert(template);
    Ok(answer)
}

fn check_data(data: &Value) -> Answer<()> {
    match data.get("UserData").and_then(Value::as_str) {
        Some(text) if !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=\r\n".contains(&b)) => {
            fail("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
        }
        _ => Ok(()),
    }
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let (cx, mut ids) = (Cx::of(ask), ask.input.texts("LaunchTemplateId"));
    for name in ask.input.texts("LaunchTemplateName") {
        ids.push(&by_name(&cx, name)?.common.id);
    }
    page_of(ask, &cx, select_ids::<LaunchTemplate>(ask, &ids)?, paging::FROM_ONE)
}

type VersionFilter<'a> = Filter<(&'a LaunchTemplate, &'a Version)>;

fn version_filters<'a>() -> [VersionFilter<'a>; 7] {
    [
        ("create-time", |(_, version), _| one(time(version.created))),
        ("is-default-version", |(template, version), _| one(version.number == template.default_version)),
        ("image-id", |(_, version), _| of_data(version, "ImageId")),
        ("instance-type", |(_, version), _| of_data(version, "InstanceType")),
        ("kernel-id", |(_, version), _| of_data(version, "KernelId")),
        ("ram-disk-id", |(_, version), _| of_data(version, "RamDiskId")),
        ("ebs-optimized", |(_, version), _| of_data(version, "EbsOptimized")),
    ]
}

fn of_data(version: &Version, member: &str) -> Vec<String> {
    version.data.get(member).and_then(Value::as_str).map(str::to_owned).into_iter().collect()
}

/// Of one template, the newest first; or the latest or default ones of all.
pub fn describe_versions(ask: &mut Ask) -> Answer<Value> {
    let (cx, filters) = (Cx::of(ask), Filters::read(&ask.input));
    let known = version_filters();
    filters.check(&known)?;
    let wanted = ask.input.texts("LaunchTemplateVersion");
    let named = ask.input.text("LaunchTemplateId").is_some() || ask.input.text("LaunchTemplateName").is_some();
    let mut rows: Vec<(&LaunchTemplate, &Version)> = Vec::new();
    if named {
        let template = find(ask)?;
        let (least, most) = (ask.input.int("MinVersion"), ask.input.int("MaxVersion"));
        let between = |version: &&Version| {
            least.is_none_or(|least| version.number >= least) && most.is_none_or(|most| version.number <= most)
        };
        match wanted.is_empty() {
            true => rows.extend(template.versions.iter().rev().filter(between).map(|version| (template, version))),
            false => {
                for version in wanted {
                    rows.push((template, template.version(version)?));
                }
            }
        }
    } else if wanted.is_empty() || wanted.iter().any(|one| !one.starts_with('$')) {
        return fail(
            "MissingParameter",
            "Either a launch template ID or a launch template name must be specified in the request.",
        );
    } else {
        for template in ask.rows(|store| &store.ec2.launch_templates, &format!("region:{}", ask.region)) {
            for version in &wanted {
                rows.push((template, template.version(version)?));
            }
        }
    }
    rows.retain(|row| filters.fit(row, &cx, &known, &Tags::new()));
    let (rows, next) = paging::page(&ask.input, rows, paging::FROM_ONE)?;
    let shown: Vec<_> = rows.iter().map(|(template, version)| template.show_version(version)).collect();
    Ok(json!({"launchTemplateVersionSet": shown, "nextToken": next}))
}

/// Without a source the new version holds what is given and nothing else.
pub fn create_version(ask: &mut Ask) -> Answer<Value> {
    let template = find(ask)?;
    let id = template.common.id.clone();
    let mut data = match ask.input.text("SourceVersion").filter(|text| !text.is_empty()) {
        Some(source) => template.version(source)?.data.clone(),
        None => json!({}),
    };
    if let (Some(Value::Object(given)), Value::Object(data)) = (ask.input.at("LaunchTemplateData"), &mut data) {
        data.extend(given.clone());
    }
    check_data(&data)?;
    let version = Version {
        number: template.latest_version + 1,
        description: ask.input.text("VersionDescription").map(str::to_owned),
        data,
        created: ask.now(),
        created_by: ask.principal.arn.clone(),
    };
    let answer = json!({"launchTemplateVersion": template.show_version(&version)});
    ask.store().ec2.launch_templates.update(&id, |template| {
        template.latest_version = version.number;
        template.versions.push(version);
    });
    Ok(answer)
}

pub fn modify(ask: &mut Ask) -> Answer<Value> {
    let template = find(ask)?;
    let id = template.common.id.clone();
    let number = template.version(ask.input.required("SetDefaultVersion")?)?.number;
    ask.store().ec2.launch_templates.update(&id, |template| template.default_version = number);
    let cx = Cx::of(ask);
    Ok(json!({"launchTemplate": shown(cx.require::<LaunchTemplate>(&id)?, &cx)}))
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let template = find(ask)?;
    let answer = json!({"launchTemplate": shown(template, &Cx::of(ask))});
    let id = template.common.id.clone();
    ask.store().ec2.launch_templates.remove(&id);
    Ok(answer)
}

pub fn delete_versions(ask: &mut Ask) -> Answer<Value> {
    let template = find(ask)?;
    let (id, name) = (template.common.id.clone(), template.name.clone());
    let (mut gone, mut kept, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    for wanted in ask.input.texts("LaunchTemplateVersion") {
        let shown = |number: &str| json!({"launchTemplateId": id, "launchTemplateName": name, "versionNumber": number});
        let problem = match template.version(wanted) {
            Ok(version) if version.number != template.default_version => {
                numbers.push(version.number);
                gone.push(shown(&version.number.to_string()));
                continue;
            }
            Ok(_) => ("unexpectedError", "The default version of a launch template cannot be deleted".to_owned()),
            Err(error) => ("launchTemplateVersionDoesNotExist", error.message),
        };
        let mut refused = shown(wanted);
        refused["responseError"] = json!({"code": problem.0, "message": problem.1});
        kept.push(refused);
    }
    ask.store().ec2.launch_templates.update(&id, |template| {
        template.versions.retain(|version| !numbers.contains(&version.number));
    });
    Ok(json!({"successfullyDeletedLaunchTemplateVersionSet": gone,
              "unsuccessfullyDeletedLaunchTemplateVersionSet": kept}))
}
