"""`python -m zooserve_cli`, the same as `zooserve`."""

from zooserve_cli.main import run

run()
