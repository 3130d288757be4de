"""By which id each type is imported, and what an import may change."""

#: What no API returns, so that an import leaves it at another value than the configuration's.
NOT_RETURNED = {
    "force_destroy",
    "deletion_window_in_days",
    "bypass_policy_lockout_safety_check",
    "update_default_version",
    "force_detach_policies",
    "revoke_rules_on_delete",
    "resolve_conflicts_on_create",
    "resolve_conflicts_on_update",
}


def rule(values):
    protocol = "all" if values["protocol"] == "-1" else values["protocol"]
    sources = values["cidr_blocks"] or values["ipv6_cidr_blocks"] or values["prefix_list_ids"] or []
    sources = list(sources) or [values["source_security_group_id"] or "self"]
    parts = [values["security_group_id"], values["type"], protocol, str(values["from_port"]), str(values["to_port"])]
    return "_".join(parts + sources)


def destination(values):
    names = ("destination_cidr_block", "destination_ipv6_cidr_block", "destination_prefix_list_id")
    return next(values[name] for name in names if values.get(name))


BY_TYPE = {
    "aws_route": lambda v: f"{v['route_table_id']}_{destination(v)}",
    "aws_route_table_association": lambda v: f"{v['subnet_id']}/{v['route_table_id']}",
    "aws_vpc_endpoint_route_table_association": lambda v: f"{v['vpc_endpoint_id']}/{v['route_table_id']}",
    "aws_network_acl_rule": lambda v: ":".join(
        [v["network_acl_id"], str(v["rule_number"]), v["protocol"], "true" if v["egress"] else "false"]
    ),
    "aws_security_group_rule": rule,
    "aws_iam_role_policy_attachment": lambda v: f"{v['role']}/{v['policy_arn']}",
    "aws_iam_role_policy": lambda v: f"{v['role']}:{v['name']}",
    "aws_cloudwatch_event_target": lambda v: f"{v['rule']}/{v['target_id']}",
    "aws_eks_node_group": lambda v: f"{v['cluster_name']}:{v['node_group_name']}",
    "aws_eks_addon": lambda v: f"{v['cluster_name']}:{v['addon_name']}",
    "aws_eks_access_entry": lambda v: f"{v['cluster_name']}:{v['principal_arn']}",
    "aws_eks_access_policy_association": lambda v: f"{v['cluster_name']}#{v['principal_arn']}#{v['policy_arn']}",
    "aws_eks_pod_identity_association": lambda v: f"{v['cluster_name']},{v['association_id']}",
}


def identifier(kind, values):
    """What `terraform import` takes for an object with these attributes; its id, unless the type says otherwise."""
    return BY_TYPE[kind](values) if kind in BY_TYPE else values["id"]


def problems(change):
    """What is wrong with one entry of a plan that should only import."""
    if change["mode"] != "managed":
        return []
    address, what = change["address"], change["change"]
    if "importing" not in what:
        return [f"{address} is not imported: {what['actions']}"]
    if what["actions"] == ["no-op"]:
        return []
    if what["actions"] != ["update"]:
        return [f"{address} would be {what['actions']}"]
    before, after = what["before"], what["after"]
    differs = {name for name in after if before.get(name) != after[name]} - NOT_RETURNED
    return [f"{address}.{name} from {before.get(name)!r} to {after[name]!r}" for name in sorted(differs)]
