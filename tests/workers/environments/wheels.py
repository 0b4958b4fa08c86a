"""Small wheels, made as PEP 427 describes them, so that no test asks an index."""

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    *,
    requires: Sequence[str] = (),
    files: Mapping[str, str | bytes] | None = None,
    scripts: Mapping[str, str] | None = None,
) -> Path:
    """Write a wheel with a module of its name that knows its version; `scripts`: "module:function" by program."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {r}" for r in requires)]
    points = "".join(f"{program} = {target}\n" for program, target in (scripts or {}).items())
    members: dict[str, str | bytes] = {
        f"{module}.py": f"VERSION = {version!r}\n\n\ndef main():\n    print({name!r}, VERSION)\n",
        **(files or {}),
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{points}",
    }
    contents = {path: text.encode() if isinstance(text, str) else text for path, text in members.items()}
    record = [f"{path},sha256={_digest(content)},{len(content)}" for path, content in contents.items()]
    contents[f"{info}/RECORD"] = ("\n".join(record) + f"\n{info}/RECORD,,\n").encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in contents.items():
            archive.writestr(member, content)
    return path


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
