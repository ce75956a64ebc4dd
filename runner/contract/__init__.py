"""The contract between the runner and the experiments: `from runner import contract as c`."""

from runner.contract.analysis import (
    Alternative,
    Alternatives,
    Analysis,
    Figures,
    Redrawn,
    Tables,
    analyse,
    redraws,
)
from runner.contract.experiment import (
    Cell,
    Checkpoints,
    Companion,
    Context,
    Experiment,
    Scalar,
    Table,
    measure,
)
from runner.contract.nearest import did_you_mean, nearest
from runner.contract.records import (
    CLAIM_VERDICTS,
    Claim,
    Statistic,
    Verdict,
    decide,
)
from runner.contract.schema import (
    GROUPS,
    Limits,
    SettingError,
    check,
    figure_settings,
    free,
    grid,
    kind,
    one_of,
    report_only,
    setting,
    since,
    typed_path,
    whole_number,
)
from runner.contract.statement import Statement
from runner.contract.words import (
    assignments,
    described,
    natural,
    plain,
    quoted,
    seeds_line,
    short,
    where_raised,
)
