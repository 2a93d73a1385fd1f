"""The salt of key ids: a platform's own, made once and kept, so that one key has one id in every log of its life."""

import secrets
from pathlib import Path

from zooserve.errors import SetupError
from zooserve.processes.files import write_atomically
from zooserve.processes.state import StateFolder
from zooserve.settings import SHORTEST_SALT, Settings

__all__ = ["with_key_salt"]


def with_key_salt(settings: Settings, folder: StateFolder) -> Settings:
    """The same settings with a salt: the one that they name, else the folder's, which is made where there is none.

    Hold the folder meanwhile. Raises SetupError if the salt cannot be kept, or is not in the file that they name.
    """
    if settings.key_salt:
        return settings
    if settings.key_salt_file is not None:
        return settings.model_copy(update={"key_salt": _in_file(settings.key_salt_file)})
    try:
        return settings.model_copy(update={"key_salt": _kept(folder)})
    except OSError as exc:
        raise SetupError(
            f"{folder.key_salt_file} cannot be used ({exc.strerror}): make it yours to read and write, "
            "or set ZOOSERVE_KEY_SALT."
        ) from exc


def _in_file(file: Path) -> str:
    try:
        salt = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as exc:
        raise SetupError(f"ZOOSERVE_KEY_SALT_FILE: {file} cannot be read ({exc}).") from exc
    if len(salt) < SHORTEST_SALT:
        raise SetupError(
            f"ZOOSERVE_KEY_SALT_FILE: {file} must hold {SHORTEST_SALT} characters or more, or it could be guessed."
        )
    return salt


def _kept(folder: StateFolder) -> str:
    file = folder.key_salt_file
    salt = file.read_text(encoding="ascii", errors="replace").strip() if file.exists() else ""
    if len(salt) != 64:
        salt = secrets.token_hex(32)
        write_atomically(file, f"{salt}\n")
    file.chmod(0o600)
    return salt
