"""Views that are read or filled in: text, YAML, info, the new-job form, a manifest.

They submit nothing themselves; they return what was typed. Their keys are declared here, so that the
key table loads no widget.
"""

from __future__ import annotations

from tui.settings.keys import SCROLL, TEXT, Key, ViewDeclaration

TEXT_VIEW = ViewDeclaration("text", "Text", keys=(*SCROLL, *TEXT), focused=())
YAML_KEYS = (
    Key("yaml.managed", "M", "managed", "Show managedFields (toggle)", "managed"),
    Key("yaml.secrets", "x", "secrets", "Show secrets (asks first; toggle)", "secrets"),
    Key("yaml.live", "r", "live", "Auto-refresh (toggle)", "live"),
)
YAML_VIEW = ViewDeclaration("yaml", "YAML", keys=(*SCROLL, *TEXT, *YAML_KEYS), focused=())
