"""The documents against the tree and the program: links, anchors, named files and options.

usage: documents_check.py ROOT CONVOY     prints a line for each fault; exit code 1 if there is one

- a relative link leads to a file of the tree, an anchor to a heading there;
- a named source, script, recipe or document is there; one below tests/ is found without that;
- every source of app/ and data/ is named by the README there;
- a command line's options are those of its command; any other option is one of Convoy's, or of a program named below;
- every option of every command, and every environment variable of Convoy that the program reads, stands in a document.
"""
import fnmatch
import os
import re
import subprocess
import sys

OTHERS = {  # options of other programs that documents name
    "slurm": "array cpus-per-task dependency gpu-bind gpus-per-node gpus-per-task kill-on-bad-exit mem mpi no-kill nodes "
             "ntasks-per-node open-mode requeue signal time batch",
    "mpirun": "bind-to cpu-list map-by mca",
    "cmake and ctest": "build install prefix test-dir",
    "tests/package.sh": "root",
    "tensorboard": "logdir",
    "nsys": "cuda-graph-trace",
    "convoy itself": "version help",
}
NAMED = re.compile(r"`(?:[\w.*/-]+/)?[\w.*-]+\.(?:c|cu|sh|py|sbatch|conf|md|def|yaml)`")
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*)")

root, convoy = sys.argv[1], os.path.abspath(sys.argv[2])
faults = []


def tree_files():
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if not name.startswith((".", "build")) and name != "runs"]
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), root)


def slug(heading):
    """The anchor that GitHub makes of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip()).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def help_of(*words):
    return subprocess.run([convoy, *words, "--help"], capture_output=True, text=True, check=True).stdout


def commands():
    """Each command ("data import") and its options."""
    found = {}
    for name in re.findall(r"^  ([a-z-]+)  ", help_of(), re.M):
        text = help_of(name)
        if text.startswith(f"usage: convoy {name} COMMAND"):
            for inner in re.findall(r"^  ([a-z-]+)  ", text, re.M):
                found[f"{name} {inner}"] = set(re.findall(r"^  (?:-\w, )?--([\w-]+)", help_of(name, inner), re.M))
        else:
            found[name] = set(re.findall(r"^  (?:-\w, )?--([\w-]+)", text, re.M))
    return found


def variables(files):
    found = set()
    for file in files:
        if file.endswith((".c", ".cu")) and not file.startswith("tests/"):
            with open(os.path.join(root, file), encoding="utf-8") as stream:
                found.update(re.findall(r'getenv\("(CONVOY_\w+)"\)', stream.read()))
    return found


def check_links(name, text, anchors, files):
    folders = {os.path.dirname(file) for file in files}
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset|href)="([^"]+)"', text)
    for link in links:
        if re.match("[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
        if target not in files and not any((folder + "/").startswith(target + "/") for folder in folders):
            faults.append(f"{name}: link to {link}, which is not in the tree")
        elif anchor and anchor not in anchors.get(target, ()):
            faults.append(f"{name}: link to {link}, where no heading is called so")


def check_names(name, text, files):
    for quoted in NAMED.findall(text):
        named = quoted.strip("`")
        if "NAME" in named:
            continue
        places = [os.path.join(os.path.dirname(name), named), named, os.path.join("tests", named)]
        exact = any(fnmatch.filter(files, os.path.normpath(place)) for place in places)
        if not exact and ("/" in named or not fnmatch.filter((os.path.basename(file) for file in files), named)):
            faults.append(f"{name}: names {named}, which is not in the tree")


def check_sources(folder, files):
    """Sources that the folder's README names in no table; `options*.c`, `dataset` and `shard_set` name some."""
    rows = "\n".join(line for line in documents[f"{folder}/README.md"].splitlines() if line.startswith("|"))
    named = [os.path.basename(name) for name in re.findall(r"`([\w*./]+)`", rows)]
    for file in sorted(files):
        base = os.path.basename(file)
        if os.path.dirname(file) == folder and base.endswith(".c"):
            if not any(fnmatch.fnmatch(base, name) or base == name + ".c" for name in named):
                faults.append(f"{folder}/README.md: no row names {base}")


def command_lines(text):
    """(command, words behind it) of what calls the program or a job script that trains."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        for call in re.finditer(r"(?:\bconvoy|jobs/(\w+)\.sbatch) (?!COMMAND)([^`#|;]*)", line):
            if call.group(1):
                yield "train", call.group(2)
                continue
            for command in known:
                if re.match(rf"{command}(?![\w-])", call.group(2)):
                    yield command, call.group(2)


def check_options(name, text):
    for command, words in command_lines(text):
        for option in OPTION.findall(words):
            if option not in known[command] and option != "help":
                faults.append(f"{name}: convoy {command} has no option --{option}")
    for option in OPTION.findall(text):
        if option not in all_options and option not in foreign:
            faults.append(f"{name}: no program has an option --{option}")


known = commands()
all_options = set().union(*known.values())
foreign = {option for options in OTHERS.values() for option in options.split()}
files = set(tree_files())
documents = {}
for file in sorted(files):
    if file.endswith(".md"):
        with open(os.path.join(root, file), encoding="utf-8") as stream:
            documents[file] = stream.read()
headings = {name: {slug(line) for line in re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)}
            for name, text in documents.items()}
for name, text in documents.items():
    check_links(name, text, headings, files)
    check_names(name, text, files)
    check_options(name, text)
for folder in ("app", "data"):
    check_sources(folder, files)
said = {option for text in documents.values() for option in OPTION.findall(text)}
for command, options in known.items():
    faults += [f"convoy {command} --{option} stands in no document" for option in sorted(options - said)]
faults += [f"{name}, which the program reads, stands in no document" for name in sorted(variables(files))
           if not any(name in text for text in documents.values())]
print("\n".join(faults) if faults else f"{len(documents)} documents, {len(all_options)} options of {len(known)} commands")
sys.exit(bool(faults))
