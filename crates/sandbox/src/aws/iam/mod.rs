//! IAM: roles, policies, users, and what they may do.

mod account;
mod attachments;
mod conditions;
mod document;
mod entity;
pub mod evaluate;
mod managed;
pub mod model;
mod oidc;
mod policies;
mod profiles;
pub mod roles;
pub mod service_linked;
mod simulate;
mod users;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::wire::{Action, Protocol, Service};
pub use document::{Attached, matches as matches_wildcard, parse as parse_policy};
use entity::{list_tags, tag, untag};
use model::{AccessKey, AccountAlias, Group, InstanceProfile, ManagedPolicy, OidcProvider, Role, User};
pub use policies::document as policy_document;
pub use simulate::of_user;

super::tables::tables! {
    roles: Role,
    policies: ManagedPolicy,
    profiles: InstanceProfile,
    oidc: OidcProvider,
    users: User,
    groups: Group,
    keys: AccessKey,
    aliases: AccountAlias,
}

pub static SERVICE: Service = Service {
    scope: "iam",
    protocol: Protocol::Query { namespace: "https://iam.amazonaws.com/doc/2010-05-08/" },
    actions: ACTIONS,
};

const ACTIONS: &[Action] = &[
    Action::change("CreateRole", roles::create),
    Action::read("GetRole", roles::get_role),
    Action::read("ListRoles", roles::list),
    Action::change("DeleteRole", roles::delete),
    Action::change("UpdateAssumeRolePolicy", roles::update_trust),
    Action::change("UpdateRole", roles::update),
    Action::change("UpdateRoleDescription", roles::update_description),
    Action::change("TagRole", tag::<Role>),
    Action::change("UntagRole", untag::<Role>),
    Action::read("ListRoleTags", list_tags::<Role>),
    Action::change("AttachRolePolicy", attachments::attach::<Role>),
    Action::change("DetachRolePolicy", attachments::detach::<Role>),
    Action::read("ListAttachedRolePolicies", attachments::list_attached::<Role>),
    Action::change("PutRolePolicy", attachments::put_inline::<Role>),
    Action::read("GetRolePolicy", attachments::get_inline::<Role>),
    Action::change("DeleteRolePolicy", attachments::delete_inline::<Role>),
    Action::read("ListRolePolicies", attachments::list_inline::<Role>),
    Action::change("PutRolePermissionsBoundary", attachments::put_boundary::<Role>),
    Action::change("DeleteRolePermissionsBoundary", attachments::delete_boundary::<Role>),
    Action::read("ListInstanceProfilesForRole", attachments::list_instance_profiles),
    Action::change("CreateServiceLinkedRole", service_linked::create),
    Action::change("DeleteServiceLinkedRole", service_linked::delete),
    Action::read("GetServiceLinkedRoleDeletionStatus", service_linked::deletion_status),
    Action::change("CreatePolicy", policies::create),
    Action::read("GetPolicy", policies::get_policy),
    Action::read("ListPolicies", policies::list),
    Action::change("DeletePolicy", policies::delete),
    Action::change("CreatePolicyVersion", policies::create_version),
    Action::read("GetPolicyVersion", policies::get_version),
    Action::read("ListPolicyVersions", policies::list_versions),
    Action::change("DeletePolicyVersion", policies::delete_version),
    Action::change("SetDefaultPolicyVersion", policies::set_default_version),
    Action::read("ListEntitiesForPolicy", policies::entities),
    Action::change("TagPolicy", tag::<ManagedPolicy>),
    Action::change("UntagPolicy", untag::<ManagedPolicy>),
    Action::read("ListPolicyTags", list_tags::<ManagedPolicy>),
    Action::change("CreateInstanceProfile", profiles::create),
    Action::read("GetInstanceProfile", profiles::get_profile),
    Action::read("ListInstanceProfiles", profiles::list),
    Action::change("DeleteInstanceProfile", profiles::delete),
    Action::change("AddRoleToInstanceProfile", profiles::add_role),
    Action::change("RemoveRoleFromInstanceProfile", profiles::remove_role),
    Action::change("TagInstanceProfile", tag::<InstanceProfile>),
    Action::change("UntagInstanceProfile", untag::<InstanceProfile>),
    Action::read("ListInstanceProfileTags", list_tags::<InstanceProfile>),
    Action::change("CreateOpenIDConnectProvider", oidc::create),
    Action::read("GetOpenIDConnectProvider", oidc::get_provider),
    Action::read("ListOpenIDConnectProviders", oidc::list),
    Action::change("DeleteOpenIDConnectProvider", oidc::delete),
    Action::change("UpdateOpenIDConnectProviderThumbprint", oidc::update_thumbprints),
    Action::change("AddClientIDToOpenIDConnectProvider", oidc::add_client),
    Action::change("RemoveClientIDFromOpenIDConnectProvider", oidc::remove_client),
    Action::change("TagOpenIDConnectProvider", tag::<OidcProvider>),
    Action::change("UntagOpenIDConnectProvider", untag::<OidcProvider>),
    Action::read("ListOpenIDConnectProviderTags", list_tags::<OidcProvider>),
    Action::change("CreateUser", users::create),
    Action::read("GetUser", users::get_user),
    Action::read("ListUsers", users::list),
    Action::change("UpdateUser", users::update),
    Action::change("DeleteUser", users::delete),
    Action::change("TagUser", tag::<User>),
    Action::change("UntagUser", untag::<User>),
    Action::read("ListUserTags", list_tags::<User>),
    Action::change("AttachUserPolicy", attachments::attach::<User>),
    Action::change("DetachUserPolicy", attachments::detach::<User>),
    Action::read("ListAttachedUserPolicies", attachments::list_attached::<User>),
    Action::change("PutUserPolicy", attachments::put_inline::<User>),
    Action::read("GetUserPolicy", attachments::get_inline::<User>),
    Action::change("DeleteUserPolicy", attachments::delete_inline::<User>),
    Action::read("ListUserPolicies", attachments::list_inline::<User>),
    Action::change("PutUserPermissionsBoundary", attachments::put_boundary::<User>),
    Action::change("DeleteUserPermissionsBoundary", attachments::delete_boundary::<User>),
    Action::change("CreateLoginProfile", users::create_login),
    Action::read("GetLoginProfile", users::get_login),
    Action::change("DeleteLoginProfile", users::delete_login),
    Action::change("CreateAccessKey", users::create_key),
    Action::read("ListAccessKeys", users::list_keys),
    Action::change("UpdateAccessKey", users::update_key),
    Action::change("DeleteAccessKey", users::delete_key),
    Action::read("GetAccessKeyLastUsed", users::key_last_used),
    Action::read("ListMFADevices", users::no_mfa_devices),
    Action::read("ListSigningCertificates", users::no_signing_certificates),
    Action::read("ListSSHPublicKeys", users::no_ssh_keys),
    Action::read("ListServiceSpecificCredentials", users::no_service_credentials),
    Action::change("CreateGroup", users::create_group),
    Action::read("GetGroup", users::get_group),
    Action::read("ListGroups", users::list_groups),
    Action::read("ListGroupsForUser", users::groups_of_user),
    Action::change("DeleteGroup", users::delete_group),
    Action::change("AddUserToGroup", users::add_to_group),
    Action::change("RemoveUserFromGroup", users::remove_from_group),
    Action::change("AttachGroupPolicy", attachments::attach::<Group>),
    Action::change("DetachGroupPolicy", attachments::detach::<Group>),
    Action::read("ListAttachedGroupPolicies", attachments::list_attached::<Group>),
    Action::change("PutGroupPolicy", attachments::put_inline::<Group>),
    Action::read("GetGroupPolicy", attachments::get_inline::<Group>),
    Action::change("DeleteGroupPolicy", attachments::delete_inline::<Group>),
    Action::read("ListGroupPolicies", attachments::list_inline::<Group>),
    Action::read("SimulatePrincipalPolicy", simulate::principal),
    Action::read("SimulateCustomPolicy", simulate::custom),
    Action::read("GetAccountSummary", account::summary),
    Action::read("GetAccountAuthorizationDetails", account::authorization_details),
    Action::read("ListAccountAliases", account::aliases),
    Action::change("CreateAccountAlias", account::create_alias),
    Action::change("DeleteAccountAlias", account::delete_alias),
    Action::read("GetAccountPasswordPolicy", account::no_password_policy),
    Action::read("ListSAMLProviders", account::no_saml_providers),
    Action::read("ListServerCertificates", account::no_server_certificates),
    Action::read("ListVirtualMFADevices", account::no_virtual_mfa_devices),
];

/// Everything but letters, digits and `-_.~`, as IAM writes documents.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

fn encoded(document: &str) -> Value {
    utf8_percent_encode(document, ENCODED).to_string().into()
}
