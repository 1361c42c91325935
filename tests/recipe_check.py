"""recipe_check.py RECIPE CMAKELISTS: loads the Spack recipe with stand-ins for Spack's names, and checks that it needs what
CMakeLists.txt looks for and that each option it sets is one of CMakeLists.txt's or CMake's. (`spack audit packages convoy` needs Spack.)"""
import contextlib
import re
import sys
import types

recipe, cmake = sys.argv[1], open(sys.argv[2]).read()
called = []


def directive(name):
    def call(*args, **options):
        called.append((name, args, options))
        return contextlib.nullcontext()

    return call


class Package:
    def __init__(self, *variants, cuda_arch=("none",)):
        self.spec = types.SimpleNamespace(
            satisfies=lambda text: set(re.findall(r"[+~]\w+", text)) <= set(variants),
            variants={"cuda_arch": types.SimpleNamespace(value=cuda_arch)},
        )

    def define(self, name, value):
        return name, value


def module(name, **names):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(names)


for parent in ("spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
    module(parent)
directives = "conflicts depends_on generator license variant version when".split()
module("spack.package", **{name: directive(name) for name in directives}, Executable=None)
module("spack_repo.builtin.build_systems.cmake", CMakePackage=Package)
module("spack_repo.builtin.build_systems.cuda", CudaPackage=type("CudaPackage", (), {}))

names = {}
exec(compile(open(recipe).read(), recipe, "exec"), names)
needed = {re.split("[@+~ ]", args[0])[0] for name, args, _ in called if name == "depends_on"}
expected = {"mpi", "hdf5", "libinih", "cjson", "random123", "xxhash", "onednn", "libarchive", "libjpeg-turbo", "libpng"}
assert expected | {"cuda", "cudnn", "nccl"} <= needed, expected - needed
least = re.search(r"cmake_minimum_required\(VERSION ([0-9.]+)\)", cmake).group(1)
assert ("depends_on", (f"cmake@{least}:",), {"type": "build"}) in called, f"CMake {least} is needed"

for package, with_cuda in (
    (names["Convoy"]("+cpu", "~cuda", "+images"), "OFF"),
    (names["Convoy"]("~cpu", "+cuda", "~images", cuda_arch=("80", "90")), "ON"),
):
    options = dict(package.cmake_args())
    assert options["WITH_CUDA"] == with_cuda, options
    for option in options:
        found = re.match("CMAKE_DISABLE_FIND_PACKAGE_(.*)", option)
        known = f"find_package({found.group(1)})" in cmake if found else option == "CMAKE_CUDA_ARCHITECTURES"
        assert known or re.search(rf"(set|option)\({option} ", cmake), f"CMakeLists.txt has no {option}"
    print(options)
assert options["CMAKE_CUDA_ARCHITECTURES"] == "80;90"
