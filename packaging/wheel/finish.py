# SPDX-License-Identifier: Apache-2.0
"""Completes a wheel that auditwheel has repaired: adds the fonts, and the licences of the libraries
that auditwheel has put in, with a list of where they come from.

Usage: finish.py <repaired wheel> <prefix of libraries.sh> <folder for the wheel>
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import backend

FONTS = ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf")
LETTERS = "20-24F,370-45F,2000-206F,20A0-20BF,2100-22FF,2500-25FF"
FONT_FOLDER = pathlib.Path("/usr/share/fonts/truetype/dejavu")
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
        source = source_of(self.prefix, name)
        self.add_source(file.name, source)
        if source == "fontconfig":
            self.add_source(f"{file.name} (static)", "expat")

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
    starts = {"libfontconfig": "fontconfig", "libcairo": "cairo", "libcurl": "curl",
              "libpq": "postgresql-15"}
    found = [source for start, source in starts.items() if library.startswith(start)]
    return found[0] if found else sys.exit(f"wheel: who made {prefix}/lib/{library}?")


def subset(font, to):
    """Copies the Latin, Greek and Cyrillic letters and the signs of a font: a quarter of
    its size."""
    subprocess.run([sys.executable, "-m", "fontTools.subset", str(font), f"--output-file={to}",
                    f"--unicodes={LETTERS}", "--layout-features=kern", "--no-recalc-timestamp",
                    "--name-IDs=*", "--notdef-outline", "--drop-tables+=FFTM"], check=True)


def main():
    repaired, prefix, folder = map(pathlib.Path, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="harpe-wheel-") as name:
        tree = pathlib.Path(name)
        backend.read_wheel(repaired, tree)
        info = next(tree.glob("*.dist-info"))
        licences = Licences(info / "licenses", prefix)
        for file in sorted((tree / "harpe.libs").iterdir()):
            licences.add_library(file)
        fonts = tree / backend.BUNDLED / "share" / "harpe" / "fonts"
        fonts.mkdir(parents=True)
        shutil.copyfile(pathlib.Path(__file__).with_name("fonts.conf"), fonts / "fonts.conf")
        for font in FONTS:
            subset(FONT_FOLDER / font, fonts / font)
            licences.add_package(font, "fonts-dejavu-core")
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
