"""What is in the package, what importing it loads, and which part may use which."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import ringback

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "python" / "ringback"
INSTALLED = Path(ringback.__file__).parent

# The parts of the Python package from the ground up: a part may import from lower levels and from itself.
LEVELS = {
    "_core": 0,
    "errors": 0,
    "_run_folder": 0,
    "episodes": 1,
    "replay": 2,  # takes episodes
    "plot": 3,  # looks at replay
    "connectors": 3,
    "callbacks": 1,
    "seeds": 1,
    "random_actions": 1,
    "vector_rows": 1,
    "vector_calls": 2,
    "open_episodes": 2,
    "recorder": 3,
    "runner": 4,
    "examples": 5,
    "_bench": 5,
    "cli": 6,
    "__main__": 7,
    "integrations": 8,
}
PUBLIC_LEVEL = LEVELS["runner"]  # `from ringback import …` gives no more than that

# The units of the core, likewise.
UNIT_LEVELS = {
    "types": 0,
    "check": 0,
    "memory": 0,
    "copy": 0,
    "prefetch": 0,
    "rng": 1,
    "lookback": 1,
    "schema": 1,
    "streams": 1,
    "count_tree": 1,
    "sum_tree": 1,
    "runs": 1,
    "windows": 2,
    "step_store": 3,
    "step_store_state": 3,
    "sampler": 4,
    "priorities": 4,
    "window_rows": 4,
    "gather": 5,
}

EXTRAS = ("torch", "matplotlib", "tqdm", "pandas", "jax", "ray", "minari", "stable_baselines3")


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def modules() -> list[tuple[Path, str]]:
    """Return (file, part it belongs to) of every module; the package's own __init__ stands above all parts."""
    found = [(path, path.relative_to(SOURCES).parts[0].removesuffix(".py")) for path in SOURCES.rglob("*.py")]
    return [(path, part) for path, part in found if part != "__init__"]


def imported_names(path: Path) -> set[str]:
    """Return the absolute names of all modules that a file imports, those inside functions too."""
    package = ["ringback", *path.relative_to(SOURCES).parent.parts]
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from ringback import cli` may name a part; `from ringback.cli import main` names it already.
            names.update(f"{module}.{alias.name}" if module == "ringback" else module for alias in node.names)
    return names


def test_importing_the_package_loads_numpy_and_gymnasium_and_no_extra() -> None:
    done = run_python("import sys, ringback; print(*sorted({name.partition('.')[0] for name in sys.modules}))")
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert {"numpy", "gymnasium"} <= loaded
    assert loaded.isdisjoint(EXTRAS)


def test_importing_the_package_prints_nothing() -> None:
    done = run_python("import ringback")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_device_without_torch_names_the_extra_to_install_in_one_sentence() -> None:
    done = run_python(
        "import sys\nsys.modules['torch'] = None\nimport ringback\n"
        "try:\n    ringback.ReplayBuffer(10, 4, 2, 'cpu')\n"
        "except ImportError as error:\n    print(error)\n"
    )
    assert done.returncode == 0, done.stderr
    sentence = done.stdout.strip()
    assert "pip install 'ringback[train]'" in sentence
    assert "\n" not in sentence
    assert not sentence.endswith(".")


def test_no_part_imports_from_a_part_above_it() -> None:
    for path, part in modules():
        assert part in LEVELS, f"{path.name}: give {part} a level in this test"
        for name in imported_names(path):
            root, _, rest = name.partition(".")
            if root != "ringback" or not rest:
                continue
            other = rest.partition(".")[0]
            level = LEVELS.get(other, PUBLIC_LEVEL)
            fine = other == part or level < LEVELS[part]
            assert fine, f"{path.relative_to(ROOT)} imports {name}"


def test_the_core_knows_neither_python_nor_numpy() -> None:
    files = [*(ROOT / "cpp" / "include").rglob("*.hpp"), *(ROOT / "cpp" / "src").rglob("*.cpp")]
    assert files
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"#include\s*[<\"](Python\.h|pybind11|numpy)", text), path


def test_no_unit_of_the_core_includes_a_unit_above_it() -> None:
    for path in [*(ROOT / "cpp" / "include").rglob("*.hpp"), *(ROOT / "cpp" / "src").rglob("*.cpp")]:
        assert path.stem in UNIT_LEVELS, f"give {path.stem} a level in this test"
        for unit in re.findall(r"#include\s*[<\"]ringback/(\w+)\.hpp", path.read_text(encoding="utf-8")):
            assert UNIT_LEVELS[unit] <= UNIT_LEVELS[path.stem], f"{path.relative_to(ROOT)} includes {unit}"


def test_the_package_carries_its_types_and_one_compiled_module() -> None:
    assert (INSTALLED / "py.typed").is_file()
    assert (INSTALLED / "_core.pyi").is_file()
    compiled = [path for path in INSTALLED.rglob("*.so")]
    assert [path.parent for path in compiled] == [INSTALLED]
    assert compiled[0].name.startswith("_core.")
    assert compiled[0].name.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))


def test_a_wheel_installs_the_package_and_the_command_and_nothing_else() -> None:
    try:
        files = importlib.metadata.files("ringback")
    except importlib.metadata.PackageNotFoundError:
        files = []  # run from a source tree with the module built in place
    for file in files or []:
        top = file.parts[0]
        assert top == "ringback" or top.endswith(".dist-info") or file.name == "ringback", file


def test_all_places_that_name_the_version_agree() -> None:
    version = ringback.__version__
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f"project(ringback VERSION {version} " in (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_public_name_exists_and_is_documented() -> None:
    assert ringback.__all__ == sorted(ringback.__all__)
    for name in ringback.__all__:
        value = getattr(ringback, name)
        assert name == "__version__" or (value.__doc__ and value.__doc__.strip()), name


def test_the_top_level_holds_what_the_design_names_and_nothing_else() -> None:
    named = {"CMakeLists.txt", "CMakePresets.json", "pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"}
    named |= {"LICENSE", "cpp", "python", "tests", "bench"}
    made = {"build", "dist", "run", "runs"}  # what building and running leave there; ignored by git
    present = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert named <= present <= named | made
