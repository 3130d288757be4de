"""Holds an answer's body against botocore's model of its service: no member that the model does not know, none missing that it
requires, every value of its type. botocore's own parsers are lenient: they skip what they do not know."""

import json
import xml.etree.ElementTree as ElementTree

from botocore.utils import parse_timestamp

from play import Wrong

#: Where botocore itself does not read the body by the model.
NO_BODY_MODEL = {("s3", "GetBucketLocation"), ("s3", "GetBucketPolicy"), ("s3", "GetObject")}
#: Values that EC2 answers with, and its model does not have.
NOT_IN_MODEL = {"nat_gateway", "available"}
ELSEWHERE = ("header", "headers", "statusCode", "uri", "querystring")
#: EC2 also answers `return` to calls whose model has no place for it.
METADATA = {"ResponseMetadata", "requestId", "RequestId", "return"}


def watch(client):
    """Every answer to this client is checked from now on; a wrong one is raised where the call was made."""
    service = client.meta.service_model

    def check(event_name=None, response_dict=None, **_):
        if response_dict and response_dict["status_code"] < 300:
            operation = service.operation_model(event_name.rsplit(".", 1)[-1])
            found = problems(operation, response_dict)
            if found:
                raise Wrong(f"{operation.name}: " + "; ".join(found[:8]))

    client.meta.events.register(f"response-received.{service.service_id.hyphenize()}", check)


def problems(operation, response):
    shape = operation.output_shape
    service = operation.service_model
    if shape is None or (service.service_name, operation.name) in NO_BODY_MODEL or operation.http.get("method") == "HEAD":
        return []
    if operation.has_streaming_output or operation.has_event_stream_output:
        return []
    body = response["body"]
    found = []
    payload = shape.serialization.get("payload")
    if payload:
        shape = shape.members[payload]
        if shape.type_name in ("blob", "string"):
            return []
    members = body_members(shape)
    try:
        if service.metadata["protocol"] in ("json", "rest-json"):
            walk_json(shape, json.loads(body or b"{}"), operation.name, found)
        elif members:
            root = ElementTree.fromstring(body)
            wrapper = operation.output_shape.serialization.get("resultWrapper")
            if wrapper:
                root = next((child for child in root if local(child) == wrapper), None)
                if root is None:
                    return [f"no {wrapper}"]
            walk_xml(shape, root, operation.name, found)
        elif service.metadata["protocol"] in ("ec2", "query"):
            ElementTree.fromstring(body)
    except (ValueError, ElementTree.ParseError) as error:
        found.append(f"the body cannot be read: {error}: {body[:200]!r}")
    return found


def body_members(shape):
    return {name: member for name, member in shape.members.items() if member.serialization.get("location") not in ELSEWHERE}


def walk_json(shape, value, path, found):
    kind = shape.type_name
    if value is None:
        return
    if kind == "structure":
        if not isinstance(value, dict):
            found.append(f"{path} is {value!r}, not an object")
            return
        by_name = {member.serialization.get("name", name): (name, member) for name, member in body_members(shape).items()}
        for key, inner in value.items():
            if key in by_name:
                walk_json(by_name[key][1], inner, f"{path}.{key}", found)
            elif key != "__type":
                found.append(f"{path} has a member that the model does not know: {key}")
        for key, (name, _) in by_name.items():
            if name in shape.required_members and value.get(key) is None:
                found.append(f"{path} lacks {key}")
    elif kind == "list":
        if not isinstance(value, list):
            found.append(f"{path} is {value!r}, not a list")
            return
        for number, inner in enumerate(value):
            walk_json(shape.member, inner, f"{path}[{number}]", found)
    elif kind == "map":
        if not isinstance(value, dict):
            found.append(f"{path} is {value!r}, not a map")
            return
        for key, inner in value.items():
            walk_json(shape.value, inner, f"{path}.{key}", found)
    else:
        json_scalar(shape, value, path, found)


def json_scalar(shape, value, path, found):
    kind = shape.type_name
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = {
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and number,
        "long": isinstance(value, int) and number,
        "float": number,
        "double": number,
        "timestamp": number if shape.serialization.get("timestampFormat") in (None, "unixTimestamp") else isinstance(value, str),
        "blob": isinstance(value, str),
    }.get(kind, True)
    if not fits:
        found.append(f"{path} is {value!r}, not of type {kind}")
    elif kind == "string":
        known(shape, value, path, found)


def known(shape, value, path, found):
    # EC2 writes some of its states in lower case, whatever its model says.
    if getattr(shape, "enum", None) and value.lower() not in {one.lower() for one in shape.enum} | NOT_IN_MODEL:
        found.append(f"{path} is {value!r}, which is none of the model's values")


def local(node):
    return node.tag.rsplit("}", 1)[-1]


def flattened(shape):
    return shape.type_name in ("list", "map") and shape.serialization.get("flattened")


def xml_name(name, member):
    if flattened(member) and member.type_name == "list":
        return member.member.serialization.get("name") or member.serialization.get("name", name)
    return member.serialization.get("name", name)


def walk_xml(shape, node, path, found):
    kind = shape.type_name
    if kind == "structure":
        by_name = {}
        for name, member in body_members(shape).items():
            by_name[xml_name(name, member)] = (name, member)
            if flattened(member):
                # Both are read: the list's own name, and its members'.
                by_name.setdefault(member.serialization.get("name", name), (name, member))
        seen = set()
        for child in node:
            name = local(child)
            if name in by_name:
                member_name, member = by_name[name]
                seen.add(member_name)
                inner = member.member if flattened(member) and member.type_name == "list" else member
                walk_xml(inner, child, f"{path}.{name}", found)
            elif name not in METADATA:
                found.append(f"{path} has an element that the model does not know: {name}")
        for name in shape.required_members:
            member = shape.members[name]
            attribute = member.serialization.get("xmlAttribute")
            if name not in seen and name in body_members(shape) and not attribute and member.type_name not in ("list", "map"):
                found.append(f"{path} lacks {name}")
    elif kind == "list":
        expected = shape.member.serialization.get("name", "member")
        for number, child in enumerate(node):
            # EC2's model says `item` at each list; where it says nothing, botocore takes any.
            if local(child) != expected and shape.member.serialization.get("name"):
                found.append(f"{path} holds <{local(child)}>, not <{expected}>")
            walk_xml(shape.member, child, f"{path}[{number}]", found)
    elif kind == "map":
        pass
    else:
        xml_scalar(shape, node, path, found)


def xml_scalar(shape, node, path, found):
    kind, text = shape.type_name, (node.text or "").strip()
    if len(node):
        found.append(f"{path} holds elements, and should be of type {kind}")
        return
    try:
        if kind in ("integer", "long"):
            int(text)
        elif kind in ("float", "double"):
            float(text)
        elif kind == "boolean" and text not in ("true", "false"):
            found.append(f"{path} is {text!r}, not a boolean")
        elif kind == "timestamp":
            parse_timestamp(text)
        elif kind == "string" and text:
            known(shape, text, path, found)
    except ValueError:
        found.append(f"{path} is {text!r}, not of type {kind}")
