"""Values that Compose hands on as they are, and that the container engine refuses, or passes over without a word."""

import re
from collections.abc import Iterator

from zooserve_cli.stack.tree import Node
from zooserve_ensembles.checking.findings import Finding, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean

__all__ = ["REFUSED", "engine_findings"]

REFUSED = Rule(
    "engine-value", Severity.ERROR, "A value that Compose hands on, and that the engine refuses or passes over"
)

_CAPABILITIES = tuple(
    re.findall(
        r"\w+",
        """
    ALL AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND BPF CHECKPOINT_RESTORE CHOWN DAC_OVERRIDE DAC_READ_SEARCH
    FOWNER FSETID IPC_LOCK IPC_OWNER KILL LEASE LINUX_IMMUTABLE MAC_ADMIN MAC_OVERRIDE MKNOD NET_ADMIN NET_BIND_SERVICE
    NET_BROADCAST NET_RAW PERFMON SETFCAP SETGID SETPCAP SETUID SYSLOG SYS_ADMIN SYS_BOOT SYS_CHROOT SYS_MODULE
    SYS_NICE SYS_PACCT SYS_PTRACE SYS_RAWIO SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG WAKE_ALARM
    """,
    )
)
_LIMITS = tuple(
    re.findall(
        r"\w+", "core cpu data fsize locks memlock msgqueue nice nofile nproc rss rtprio rttime sigpending stack"
    )
)
_DRIVERS = ("awslogs", "fluentd", "gcplogs", "gelf", "journald", "json-file", "local", "none", "splunk", "syslog")
_RESTART = r"no|always|unless-stopped|on-failure(:\d+)?"
_SECURITY = r"no-new-privileges([:=](true|false))?|(seccomp|apparmor|label|systempaths|writable-cgroups)[:=].+|name=.+"
_TMPFS = (
    r"/[^:]*(:((rw|ro|(no)?(exec|suid|dev|atime|diratime)|(no)?relatime|mode=[0-7]+|size=\d+[kmgKMG]?%?"
    r"|(uid|gid)=\d+|nr_(inodes|blocks)=\d+[kmgKMG]?)(,(?!$)|$))*)?"
)
_MOUNT = re.compile(r"r[ow]|[zZ]|nocopy|cached|delegated|consistent|r?(shared|slave|private|bind)")
_USER = r"[A-Za-z0-9_.$-]+(:[A-Za-z0-9_.$-]+)?"
_SIGNAL = r"(SIG)?[A-Z][A-Z0-9+-]+|\d+"


def engine_findings(name: str, node: Node) -> Iterator[Finding]:
    """What of a service the engine would not take as it is meant."""
    yield from _texts(name, node)
    for key in ("cap_add", "cap_drop"):
        for part in node[key].elements:
            if (known := part.text.upper().removeprefix("CAP_")) not in _CAPABILITIES:
                yield _refused(part, f"{key} of {name} has no {part.text}", known, _CAPABILITIES)
    for limit, inner in node["ulimits"].entries.items():
        if limit not in _LIMITS:
            yield REFUSED.at(inner.key_place, f"{name} has no limit {limit}. {did_you_mean(limit, _LIMITS)}".strip())
    driver = node["logging"]["driver"]
    if driver.text and driver.text not in _DRIVERS and did_you_mean(driver.text, _DRIVERS):
        yield _refused(driver, f"{name} logs to {driver.text}", driver.text, _DRIVERS)
    for part in node["volumes"].elements:
        yield from _options(name, part)


def _texts(name: str, node: Node) -> Iterator[Finding]:
    for key, pattern, kind in (
        ("restart", _RESTART, "no, always, unless-stopped or on-failure"),
        ("user", _USER, "a user, or user:group"),
        ("stop_signal", _SIGNAL, "a signal, as SIGTERM"),
    ):
        text = node[key].text
        if text and not (key == "restart" and text == "false") and not re.fullmatch(pattern, text):
            yield REFUSED.at(node[key].place, f"{key} of {name} cannot be {text}: write {kind}")
    for key, pattern, kind in (
        ("security_opt", _SECURITY, "no-new-privileges:true, or seccomp=FILE"),
        ("tmpfs", _TMPFS, "/path:mode=1777,size=1g"),
    ):
        for part in node[key].elements or ((node[key],) if node[key].text else ()):
            if not re.fullmatch(pattern, part.text):
                yield REFUSED.at(part.place, f"{key} of {name} cannot be {part.text}: write it as {kind}")


def _options(name: str, part: Node) -> Iterator[Finding]:
    """Of a mount in one word: an option that Compose does not know is passed over, and `rx` is not `ro`."""
    if part.is_mapping or part.text.count(":") != 2 or re.match(r"[A-Za-z]:[\\/]", part.text):
        return
    for option in part.text.rpartition(":")[2].split(","):
        if not _MOUNT.fullmatch(option):
            yield REFUSED.at(part.place, f"a mount of {name} has no option {option}: ro and rw are usual")


def _refused(node: Node, told: str, name: str, known: tuple[str, ...]) -> Finding:
    return REFUSED.at(node.place, f"{told}. {did_you_mean(name, known)}".strip())
