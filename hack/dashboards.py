"""Writes dashboards/: the alerts as a rule file of Prometheus, and the dashboards for Grafana.

Run ``python hack/dashboards.py`` after a change of either; a test compares what is committed. The
dashboards are made by Grafana's own library, the foundation SDK, which is in the group ``dev``.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "dashboards"
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from appsdk_operator.project._manifests.alerts import alert_rules  # noqa: E402
from appsdk_operator.project._manifests.tree import Commented, document  # noqa: E402
from hack.grafana_panels import BOARDS, Board, Panel  # noqa: E402

_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_TAG = "appsdk-operator"
# Of the 24 columns of a dashboard.
_WIDTHS = {"timeseries": 8, "stat": 4, "table": 12}
_HEIGHTS = {"timeseries": 8, "stat": 4, "table": 6}
_KIT = "appsdk_operator_info"
_VARIABLES = (
    # name, label, query
    ("namespace", "Namespace", f"label_values({_KIT}, namespace)"),
    ("operator", "Operator", f'label_values({_KIT}{{namespace=~"$namespace"}}, job)'),
    (
        "instance",
        "Instance",
        f'label_values({_KIT}{{namespace=~"$namespace",job=~"$operator"}}, instance)',
    ),
    (
        "controller",
        "Controller",
        'label_values(workqueue_depth{namespace=~"$namespace",job=~"$operator"}, controller)',
    ),
)


def texts() -> dict[str, str]:
    """The text of each file, by its name."""
    encode = JSONEncoder(sort_keys=True, indent=2).encode
    boards = {f"{board.name}.json": encode(_dashboard(board).build()) + "\n" for board in BOARDS}
    return {"alerts.yaml": _alerts(), **boards}


def _alerts() -> str:
    note = (
        "Alerts for all operators of the kit that this Prometheus scrapes.",
        "Written by hack/dashboards.py; docs/runbooks.md says what to do.",
    )
    groups = [{"name": "appsdk-operator", "rules": alert_rules()}]
    return document({"groups": Commented(groups, note)})


def _dashboard(board: Board) -> dashboard.Dashboard:
    made = (
        dashboard.Dashboard(f"Operator / {board.title}")
        .uid(f"appsdk-operator-{board.name}")
        .description(board.description)
        .tags([_TAG])
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("Operator")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([_TAG])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Source").type("prometheus")
        )
    )
    for name, label, query in _VARIABLES:
        made.with_variable(
            dashboard.QueryVariable(name)
            .label(label)
            .datasource(_SOURCE)
            .query(query)
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(VariableSort.ALPHABETICAL_ASC)
            .multi(True)
            .include_all(True)
            .all_value(".*")
            .current(VariableOption(selected=True, text=["All"], value=["$__all"]))
        )
    numbers = itertools.count(1)
    for row in board.rows:
        made.with_row(dashboard.Row(row.title).id(next(numbers)))
        for panel in row.panels:
            made.with_panel(_panel(panel).id(next(numbers)))
    return made


def _panel(panel: Panel) -> timeseries.Panel | stat.Panel | table.Panel:
    made: timeseries.Panel | stat.Panel | table.Panel
    if panel.kind == "stat":
        made = _stat(panel)
    elif panel.kind == "table":
        made = _table()
    else:
        made = _time_series()
    made.title(panel.title).description(panel.description).unit(panel.unit).datasource(_SOURCE)
    made.span(_WIDTHS[panel.kind]).height(_HEIGHTS[panel.kind])
    for place, query in enumerate(panel.queries):
        target = (
            prometheus.Dataquery()
            .expr(query.text())
            .legend_format(query.legend)
            .ref_id(chr(ord("A") + place))
            .datasource(_SOURCE)
        )
        if panel.kind == "table":
            target.instant().format(PromQueryFormat.TABLE)
        else:
            target.range()
        made.with_target(target)
    return made


def _time_series() -> timeseries.Panel:
    return (
        timeseries.Panel()
        .min(0)
        .fill_opacity(5)
        .line_width(1)
        .show_points("never")
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.TABLE)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(
            common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
        )
    )


def _stat(panel: Panel) -> stat.Panel:
    steps = [Threshold(value=None, color="green")]
    if panel.bad_from is not None:
        steps.append(Threshold(value=panel.bad_from, color="red"))
    return (
        stat.Panel()
        .color_mode(BigValueColorMode.VALUE)
        .graph_mode(BigValueGraphMode.AREA)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    )


def _table() -> table.Panel:
    # The time of the query is the same in each line.
    return table.Panel().override_by_name("Time", [DynamicConfigValue("custom.hidden", True)])


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(f"dashboards/{name}")


if __name__ == "__main__":
    main()
