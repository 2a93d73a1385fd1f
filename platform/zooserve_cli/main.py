"""The `zooserve` command: its subcommands, and how an error is told. Each subcommand imports what it needs."""

import sys

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from zooserve.catalogue import CatalogueError
from zooserve.errors import ZooserveError
from zooserve_cli import engine, ensembles, leaf, new
from zooserve_cli.demo import demo
from zooserve_cli.doctor import doctor
from zooserve_cli.down import down
from zooserve_cli.export import export
from zooserve_cli.fetch import fetch
from zooserve_cli.logs import logs
from zooserve_cli.models import models
from zooserve_cli.reembed import reembed
from zooserve_cli.route import route
from zooserve_cli.stack import command as stack
from zooserve_cli.status import status
from zooserve_cli.template import template
from zooserve_cli.trace import trace
from zooserve_cli.triton import triton
from zooserve_cli.up import up

__all__ = ["app", "run"]

app = typer.Typer(
    name="zooserve",
    help="A zoo of models behind one HTTP API: embed, rerank, classify and chat, on Triton and Ray Serve.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: importing what draws the boxes costs more than everything else together.
    rich_markup_mode=None,
)
for command in (up, down, status, doctor, fetch, export, models, logs, trace, demo, reembed, route, triton, template):
    app.command()(command)
app.add_typer(engine.app, name="engine")
app.add_typer(ensembles.app, name="ensembles")
app.add_typer(leaf.app, name="leaf")
app.add_typer(new.app, name="new")
app.add_typer(stack.app, name="stack")


def run() -> None:
    """Run the command line. An expected error is one red line and exit code 1; a wrong usage is 2."""
    try:
        app()
    except (ZooserveError, CatalogueError) as exc:
        _fail(str(exc))
    except ValidationError as exc:
        fault = exc.errors(include_url=False)[0]
        where = "__".join(str(part).upper() for part in fault["loc"])
        _fail(f"The setting ZOOSERVE_{where} cannot be used: {fault['msg']}.")
    except SettingsError as exc:  # it names the group
        _fail(f"A group of settings in one variable must be JSON ({exc}). Set them one by one, as ZOOSERVE_ZOO__HOST.")
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(message: str) -> None:
    typer.secho(message, fg="red", err=True)
    sys.exit(1)
