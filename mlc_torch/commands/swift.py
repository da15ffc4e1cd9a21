"""``mlc-torch swift run | build | test | package | doctor``: Swift programs of ML Compute, unchanged, on Linux."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import signal
import sys
from pathlib import Path

from mlc_torch.swift import cache, packages, programs
from mlc_torch.swift.libpython import libpython
from mlc_torch.swift.module_package import write_package
from mlc_torch.swift.neighbours import ON_REQUEST, USUAL, chosen_neighbours
from mlc_torch.swift.processes import become
from mlc_torch.swift.saying import SwiftTrouble, say
from mlc_torch.swift.toolchain import toolchain

TAKES_MORE = True  # what stands after "--" is given to the program or to swift build


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run_ = verbs.add_parser("run", help="compile Swift files as one program and run it; its arguments come after --")
    run_.add_argument("files", nargs="+", metavar="FILE.swift", help="or a playground, or one of its pages")
    run_.add_argument("-O", action="store_true", dest="optimized", help="with optimization")
    run_.add_argument("--swiftc", action="append", default=[], metavar="=FLAG", help="a further flag for the compiler")
    run_.add_argument(
        "--in-python", action="store_true", help="as a library within this Python, which needs no libpython"
    )
    run_.set_defaults(verb=_run, more_is="arguments for the program")

    build = verbs.add_parser("build", help="build a SwiftPM package; arguments after -- go to swift build")
    test = verbs.add_parser("test", help="build the tests of a SwiftPM package and run them")
    test.add_argument("--filter", action="append", default=[], metavar="REGEX", help="run only tests whose name fits")
    for verb, action in ((build, _build), (test, _test)):
        verb.add_argument("folder", nargs="?", default=".", metavar="DIR", help="where Package.swift is")
        verb.add_argument("-c", "--configuration", choices=["debug", "release"], default="debug")
        verb.set_defaults(verb=action, more_is="arguments for swift build")

    package = verbs.add_parser("package", help="write the module as a SwiftPM package to depend on by path")
    package.add_argument("folder", metavar="DIR")
    package.set_defaults(verb=_package)

    doctor = verbs.add_parser("doctor", help="which toolchain, Python and torch are used, and where things are kept")
    doctor.add_argument("--clear", action="store_true", help="throw away everything that was built")
    doctor.set_defaults(verb=_doctor)

    for verb in (run_, build, test, package):
        verb.add_argument(
            "--with",
            type=_names,
            default=[],
            dest="with_",
            metavar="NAMES",
            help=f"bare modules of Apple's: {', '.join(ON_REQUEST)}",
        )
        verb.add_argument(
            "--without",
            type=_names,
            default=[],
            metavar="NAMES",
            help=f"leave out of the usual ones: {', '.join(USUAL)}",
        )


def run(arguments: argparse.Namespace) -> int:
    try:
        return int(arguments.verb(arguments) or 0)
    except SwiftTrouble as trouble:
        if str(trouble):
            say(str(trouble))
        return trouble.status
    except OSError as error:
        say(_cannot_be_used(error))
        return 1
    except KeyboardInterrupt:  # while something is compiled; a program that runs already has this process's place
        return become(-signal.SIGINT)


def _cannot_be_used(error: OSError) -> str:
    """The sentence for a file or folder that the system does not let us read or write."""
    if error.filename is None or error.strerror is None:
        return str(error)
    place, kept = Path(os.fsdecode(error.filename)), cache.folder()
    hint = f" (the cache is {kept}; MLC_TORCH_CACHE names another place)" if place in (kept, *kept.parents) else ""
    return f"{place} cannot be used: {error.strerror}{hint}"


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _run(arguments: argparse.Namespace) -> None:
    wanted = programs.program(
        arguments.files, arguments.with_, arguments.without, arguments.optimized, arguments.swiftc, arguments.in_python
    )
    programs.run(wanted, arguments.more)


def _the_package(arguments: argparse.Namespace) -> packages.Package:
    neighbours = chosen_neighbours(arguments.with_, arguments.without)
    return packages.Package(
        Path(arguments.folder).absolute(), neighbours, arguments.configuration, tuple(arguments.more)
    )


def _build(arguments: argparse.Namespace) -> None:
    _the_package(arguments).build(tests=False)


def _test(arguments: argparse.Namespace) -> int:
    return _the_package(arguments).test(arguments.filter)


def _package(arguments: argparse.Namespace) -> None:
    write_package(Path(arguments.folder).absolute(), chosen_neighbours(arguments.with_, arguments.without))


def _doctor(arguments: argparse.Namespace) -> int:
    if arguments.clear:
        _print(f"cleared {cache.folder()}: {cache.clear() / 1e6:.0f} MB")
        return 0
    status = 0
    try:
        tools = toolchain()
        _print(f"toolchain   {tools.version}, {tools.target}\n            {tools.swiftc}")
    except SwiftTrouble as trouble:
        _print(f"toolchain   {trouble}")
        status = 1
    _print(f"Python      {platform.python_version()}, {sys.executable}")
    _print(f"libpython   {libpython() or 'none: programs run inside Python, packages cannot be tested'}")
    _print(f"torch       {_version('torch')}")
    _print(f"mlc_torch   {_version('mlc_torch')}, {Path(__file__).parents[1]}")
    try:
        cache.try_out()
        _print(f"cache       {cache.folder()}, {cache.size() / 1e6:.0f} MB")
    except OSError as error:
        _print(f"cache       {_cannot_be_used(error)}")
        status = 1
    return status


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
