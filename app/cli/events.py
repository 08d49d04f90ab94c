"""`duehook events erase`."""

import typer

from app.cli import erase_event

app = typer.Typer(help="Events: erase what one says.", no_args_is_help=True)
app.command(epilog=erase_event.EPILOG)(erase_event.erase)


@app.callback(epilog=erase_event.EPILOG)
def _events() -> None: ...
