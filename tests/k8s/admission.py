"""A MutatingAdmissionPolicy as the API server would use it, offline: its CEL by Google's library, then a JSON Patch.

What is not as in the API server:
- It fills in the defaults of a pod first; here the pod is as it was written.
- The API server refuses list and map literals whose elements are of several types; this library accepts them.
- Limits on the cost of an expression are not counted.
- Types such as Object.spec.volumes are made here from Kubernetes' own schemas, so a field that does not exist is
  refused when the expression is compiled; the API server refuses it when it decodes the patched pod.
- The selectors of the policy and of its binding are not evaluated.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from k8s.manifests import Object, needed

# Object.spec.volumes{...}, without the brace.
TYPE = re.compile(r"\bObject((?:\.\w+)+)(?=\{)")


class Policy:
    """The policy's expressions, compiled."""

    def __init__(self, manifest: Object, kubernetes_version: str) -> None:
        cel = needed("cel_expr_python.cel")
        spec = manifest["spec"]
        (mutation,) = spec["mutations"]
        patch = mutation["jsonPatch"]["expression"]
        # Conditions are asked before the variables exist.
        before = cel.NewEnv(variables={"object": cel.Type.DYN})
        environment = cel.NewEnv(
            descriptors(patch, kubernetes_version),
            variables={"object": cel.Type.DYN, "variables": cel.Type.DYN},
        )
        self.conditions = [before.compile(condition["expression"]) for condition in spec["matchConditions"]]
        self.variables = {
            variable["name"]: environment.compile(variable["expression"]) for variable in spec["variables"]
        }
        self.patch = environment.compile(TYPE.sub(lambda match: type_name(match[1]), patch))

    def matches(self, pod: Object) -> bool:
        return all(condition.eval(data={"object": pod}).plain_value() for condition in self.conditions)

    def operations(self, pod: Object) -> list[Object]:
        """The JSON Patch for the pod."""
        to_dict = needed("google.protobuf.json_format").MessageToDict
        variables: dict[str, Any] = {}
        for name, expression in self.variables.items():
            variables[name] = expression.eval(data={"object": pod, "variables": variables}).plain_value()
        result = self.patch.eval(data={"object": pod, "variables": variables}).plain_value()
        return [to_dict(operation, preserving_proto_field_name=True) for operation in result]

    def admit(self, pod: Object) -> Object:
        """The pod as the cluster gets it."""
        operations = self.operations(pod) if self.matches(pod) else []
        return needed("jsonpatch").apply_patch(without_empty_lists(pod), operations) if operations else pod


def without_empty_lists(part: Any) -> Any:
    """A pod as the API server writes it out for the patch: a list without elements is left out."""
    if isinstance(part, list):
        return [without_empty_lists(element) for element in part]
    if isinstance(part, dict):
        return {name: without_empty_lists(value) for name, value in part.items() if value != []}
    return part


def type_name(path: str) -> str:
    """One name for a type: a message of protobuf cannot hold a type and a field of the same name."""
    return "Object" + path.replace(".", "_")


def descriptors(expression: str, kubernetes_version: str) -> Any:
    """JSONPatch, and each Object type that the expression names, as messages with the fields of Kubernetes' schema."""
    messages, pools = needed("google.protobuf.descriptor_pb2"), needed("google.protobuf.descriptor_pool")
    value = needed("google.protobuf.struct_pb2").DESCRIPTOR
    field = messages.FieldDescriptorProto
    paths = set(TYPE.findall(expression))
    file = messages.FileDescriptorProto(name="admission.proto", syntax="proto2", dependency=[value.name])

    def add(message: Any, name: str, kind: str, repeated: bool = False) -> None:
        message.field.add(
            name=name,
            number=len(message.field) + 1,
            label=field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL,
            type={"string": field.TYPE_STRING, "boolean": field.TYPE_BOOL}.get(kind, field.TYPE_MESSAGE),
            type_name=None if kind in {"string", "boolean"} else kind,
        )

    patch = file.message_type.add(name="JSONPatch")
    for name in ("op", "path", "from"):
        add(patch, name, "string")
    add(patch, "value", ".google.protobuf.Value")

    for path in sorted(paths):
        message = file.message_type.add(name=type_name(path))
        for name, schema in schema_of(path, kubernetes_version)["properties"].items():
            if f"{path}.{name}" in paths:
                add(message, name, "." + type_name(f"{path}.{name}"), repeated="items" in schema)
            elif schema.get("type") in (["string", "null"], ["boolean", "null"], "string", "boolean"):
                add(message, name, schema["type"] if isinstance(schema["type"], str) else schema["type"][0])
            else:
                add(message, name, ".google.protobuf.Value")

    pool = pools.DescriptorPool()
    pool.AddSerializedFile(value.serialized_pb)
    pool.Add(file)
    return pool


@cache
def definitions_of(kubernetes_version: str) -> Object:
    """Kubernetes' own schemas, by name."""
    file = f"kubernetes-json-schema/v{kubernetes_version}.0-local-strict/_definitions.json"
    return needed("kubernetes_validate.utils").schema_contents(file, kubernetes_version)["$defs"]


def schema_of(path: str, kubernetes_version: str) -> Object:
    """Kubernetes' schema of a part of a pod, such as ".spec.volumes": of one element where it is a list."""
    definitions = definitions_of(kubernetes_version)

    def resolved(schema: Object) -> Object:
        schema = schema.get("items", schema)
        return definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema

    schema = definitions["io.k8s.api.core.v1.Pod"]
    for name in path.split(".")[1:]:
        schema = resolved(schema["properties"][name])
    return schema
