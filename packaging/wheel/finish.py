# SPDX-License-Identifier: Apache-2.0
"""Completes a wheel that auditwheel has repaired: adds the licences of the libraries that auditwheel
has put in, with a list of where they come from.

Usage: finish.py <repaired wheel> <prefix of libraries.sh> <folder for the wheel>
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import backend

DOCUMENTS = pathlib.Path("/usr/share/doc")
COMMON = pathlib.Path("/usr/share/common-licenses")


def output(*command):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def package_of(path):
    """Returns the Debian package that owns a file. dpkg may know it below /lib or /usr/lib."""
    real = str(path.resolve())
    for name in (real, real.removeprefix("/usr"), f"/usr{real}"):
        found = subprocess.run(["dpkg-query", "--search", name], check=False, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        if found:
            return found.split(":")[0]
    sys.exit(f"wheel: no Debian package owns {path}, so its licence is not known")


class Licences:
    """The licences of what the wheel bundles. Debian's copyright files name the full texts of
    common licences, which therefore come along."""

    def __init__(self, folder, prefix):
        self.folder, self.prefix, self.rows = folder, prefix, []

    def add(self, what, name, version, copyright_file, origin):
        target = self.folder / name
        if not target.exists():
            target.mkdir(parents=True)
            text = copyright_file.read_text(encoding="utf-8", errors="replace")
            (target / "copyright").write_text(text, encoding="utf-8")
            for common in set(re.findall(rf"{COMMON}/([\w.+-]*[\w+])", text)):
                self.add_common(common)
        self.rows.append((what, name, version, origin))

    def add_common(self, name):
        target = self.folder / "common-licenses" / name
        if (COMMON / name).is_file() and not target.exists():
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(COMMON / name, target)

    def add_package(self, what, package):
        version = output("dpkg-query", "--show", "--showformat=${Version}", package)
        self.add(what, package, version, DOCUMENTS / package / "copyright", "Debian's package")

    def add_library(self, file):
        """Adds the licence of a library that auditwheel has renamed: libz-1a2b3c4d.so.1 was
        libz.so.1."""
        name = re.sub(r"-[0-9a-f]{8}(?=\.so)", "", file.name)
        own = self.prefix / "lib" / name
        if not own.exists():
            self.add_package(file.name, package_of(find_library(name)))
            return
        self.add_source(file.name, source_of(self.prefix, name))

    def add_source(self, what, source):
        folder = self.prefix / "licences" / source
        self.add(what, source, (folder / "version").read_text().strip(), folder / "copyright",
                 "Debian's source package, built for the wheel")

    def write_list(self):
        lines = ["What this wheel bundles. Each library can be replaced: put another build of it",
                 "in the place of the file. The sources are those of Debian, by name and version.",
                 ""]
        lines += [f"{what}: {name} {version} ({origin}); licence: {name}/copyright"
                  for what, name, version, origin in sorted(self.rows)]
        (self.folder / "BUNDLED").write_text("\n".join(lines) + "\n", encoding="utf-8")


def find_library(name):
    triplet = output("cc", "-print-multiarch").strip()
    for folder in (f"/usr/lib/{triplet}", f"/lib/{triplet}", "/usr/lib", "/lib"):
        if (path := pathlib.Path(folder, name)).exists():
            return path
    sys.exit(f"wheel: {name} is in none of the system's directories")


def source_of(prefix, library):
    """Returns which of the sources of libraries.sh has made a library."""
    starts = {"libcurl": "curl", "libpq": "postgresql-15"}
    found = [source for start, source in starts.items() if library.startswith(start)]
    return found[0] if found else sys.exit(f"wheel: who made {prefix}/lib/{library}?")


def main():
    repaired, prefix, folder = map(pathlib.Path, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="harpe-wheel-") as name:
        tree = pathlib.Path(name)
        backend.read_wheel(repaired, tree)
        info = next(tree.glob("*.dist-info"))
        licences = Licences(info / "licenses", prefix)
        for file in sorted((tree / "harpe.libs").iterdir()):
            licences.add_library(file)
        licences.write_list()
        metadata = info / "METADATA"
        files = sorted(path.relative_to(info / "licenses").as_posix()
                       for path in (info / "licenses").rglob("*") if path.is_file())
        metadata.write_text(metadata.read_text(encoding="utf-8").replace(
            "License-File: LICENSE\n", "".join(f"License-File: {file}\n" for file in files), 1),
            encoding="utf-8")
        backend.write_wheel(tree, folder / repaired.name)
    print(folder / repaired.name)


if __name__ == "__main__":
    main()
