"""An interactive report of a solve: one HTML page that needs no network. Writing it needs plotly."""

from .page import write
from .views import View

__all__ = ["View", "write"]
