"""jobs/mpijob.yaml: fits its schema, and its numbers and names fit each other; spoilt in many ways it does not.

usage: manifest_check.py MANIFEST SCHEMA CONFIG_FOLDER
"""
import copy
import json
import os
import sys
import warnings

import yaml

warnings.simplefilter("ignore")
import jsonschema  # noqa: E402

with open(sys.argv[1]) as file:
    job = yaml.safe_load(file)
with open(sys.argv[2]) as file:
    schema = json.load(file)
jsonschema.Draft7Validator.check_schema(schema)
validator = jsonschema.Draft7Validator(schema)

faults = [f"{'/'.join(map(str, e.path))}: {e.message}" for e in validator.iter_errors(job)]
assert not faults, faults

replicas = job["spec"]["mpiReplicaSpecs"]
slots = job["spec"]["slotsPerWorker"]
ranks = replicas["Worker"]["replicas"] * slots
command = replicas["Launcher"]["template"]["spec"]["containers"][0]["command"]
assert command[command.index("-n") + 1] == str(ranks), command
assert f"--expect-ranks={ranks}" in command, command
config = next(word for word in command if word.startswith("--config="))
assert os.path.exists(os.path.join(sys.argv[3], os.path.basename(config))), config
for replica in replicas.values():
    pod = replica["template"]["spec"]
    names = {volume["name"] for volume in pod["volumes"]}
    for container in pod["containers"]:
        assert {mount["name"] for mount in container["volumeMounts"]} <= names, container
worker = replicas["Worker"]["template"]["spec"]["containers"][0]
assert worker["resources"]["limits"]["nvidia.com/gpu"] == slots, worker

spoilt = 0


def spoil(what, change):
    """The manifest with one change must be refused."""
    global spoilt
    other = copy.deepcopy(job)
    change(other)
    assert list(validator.iter_errors(other)), what
    spoilt += 1


def walk(node, path=()):
    """Every place of the manifest."""
    yield path, node
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from walk(value, path + (key,))


def at(root, path):
    """The node at a place."""
    for key in path:
        root = root[key]
    return root


free = {"limits"}  # whose names are not the schema's
for place, node in walk(job):
    if isinstance(node, dict) and not free & set(place[-1:]):
        spoil(f"an unknown field in {place}", lambda other: at(other, place).update(nonsense=1))
    if place:
        spoil(f"{place} of another type", lambda other: at(other, place[:-1]).__setitem__(place[-1], [[None]]))
for name in ("apiVersion", "kind", "metadata", "spec"):
    spoil(f"no {name}", lambda other: other.pop(name))
spoil("no workers", lambda other: other["spec"]["mpiReplicaSpecs"].pop("Worker"))
print(f"{spoilt} spoilt manifests refused")
