"""The salt of key ids: a platform's own, made once and kept, so that one key has one id in every log of its life."""

import secrets

from zooserve.errors import SetupError
from zooserve.processes.files import write_atomically
from zooserve.processes.state import StateFolder
from zooserve.settings import Settings

__all__ = ["with_key_salt"]


def with_key_salt(settings: Settings, folder: StateFolder) -> Settings:
    """The same settings with a salt: the one that they name, else the folder's, which is made where there is none.

    Hold the folder meanwhile. Raises SetupError if the salt cannot be kept.
    """
    if settings.key_salt:
        return settings
    try:
        return settings.model_copy(update={"key_salt": _kept(folder)})
    except OSError as exc:
        raise SetupError(
            f"{folder.key_salt_file} cannot be used ({exc.strerror}): make it yours to read and write, "
            "or set ZOOSERVE_KEY_SALT."
        ) from exc


def _kept(folder: StateFolder) -> str:
    file = folder.key_salt_file
    salt = file.read_text(encoding="ascii", errors="replace").strip() if file.exists() else ""
    if len(salt) != 64:
        salt = secrets.token_hex(32)
        write_atomically(file, f"{salt}\n")
    file.chmod(0o600)
    return salt
