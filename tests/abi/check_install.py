"""What `cmake --install` puts somewhere is enough to build with: by pkg-config
and by find_package, without the sources.
usage: check_install.py CMAKE BUILD CC"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = """cmake_minimum_required(VERSION 3.22)
project(user C)
find_package(dynatrain 0.1 REQUIRED)
add_executable(user consumer.c)
target_link_libraries(user PRIVATE dynatrain::dynatrain)
"""


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], text=True,
                          capture_output=True, **more)
    if done.returncode != 0:
        sys.exit(f"{command}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def by_pkg_config(cc, prefix, folder):
    found = next(prefix.rglob("dynatrain.pc")).parent
    env = {**os.environ, "PKG_CONFIG_PATH": str(found)}
    flags = run("pkg-config", "--cflags", "--libs", "dynatrain",
                env=env).split()
    run(cc, "-std=c11", HERE / "consumer_plugin.c", "-o", folder / "by_pc",
        *flags)
    run(folder / "by_pc",
        env={**os.environ, "LD_LIBRARY_PATH": str(found.parent)})


def by_find_package(cmake, cc, prefix, folder):
    shutil.copy(HERE / "consumer_plugin.c", folder / "consumer.c")
    (folder / "CMakeLists.txt").write_text(PROJECT)
    run(cmake, "-S", folder, "-B", folder / "build",
        f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_C_COMPILER={cc}")
    run(cmake, "--build", folder / "build")
    run(folder / "build/user")


def main():
    cmake, build, cc = sys.argv[1:4]
    with tempfile.TemporaryDirectory() as top:
        folder = pathlib.Path(top)
        prefix = folder / "usr"
        run(cmake, "--install", build, "--prefix", prefix, "--component",
            "library")
        headers = {p.name for p in (prefix / "include/dynatrain").glob("*.h")}
        sources = {p.name for p in
                   (HERE.parents[1] / "core/include/dynatrain").glob("*.h")}
        assert headers == sources, headers ^ sources
        if shutil.which("pkg-config"):
            by_pkg_config(cc, prefix, folder)
        by_find_package(cmake, cc, prefix, folder)
    print(f"abi: {len(headers)} headers, by pkg-config and find_package")


if __name__ == "__main__":
    main()
