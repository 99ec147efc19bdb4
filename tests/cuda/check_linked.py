"""Nothing of CUDA is linked: neither with the program, nor with the library,
nor with the module, which opens the driver when it is asked.
usage: check_linked.py FILE..."""

import re
import subprocess
import sys

CUDA = re.compile(r"lib(cuda|cudart|cublas|cublasLt|nccl|nvrtc|nvidia|nvToolsExt)"
                  r"\b")


def needed(file):
    text = subprocess.run(["readelf", "-d", file], check=True,
                          capture_output=True, text=True).stdout
    return re.findall(r"NEEDED.*\[(.*)\]", text)


def main():
    findings, libraries = [], 0
    for file in sys.argv[1:]:
        names = needed(file)
        libraries += len(names)
        findings += [f"{file} needs {n}" for n in names if CUDA.match(n)]
        if not names:
            findings.append(f"{file} needs nothing at all, not even libc")
    print("\n".join(findings))
    print(f"linked: {len(sys.argv) - 1} files, {libraries} libraries, "
          f"{len(findings)} findings")
    sys.exit(bool(findings) or len(sys.argv) < 2)


if __name__ == "__main__":
    main()
