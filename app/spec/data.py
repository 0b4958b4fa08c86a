"""What a job trains on: the table, the target, the features, the split and the preparation."""

import re
from collections import Counter
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from app.spec.base import MOST_COLUMNS, ColumnName, PlainText, SpecModel
from app.spec.sugar import named_by

BuiltinName: TypeAlias = Literal["digits", "iris", "wine", "breast_cancer", "diabetes"]
BUILTIN_NAMES: tuple[str, ...] = get_args(BuiltinName)

_DATASET_ID = re.compile(r"ds_[0-9A-Za-z]{1,64}")


def _known_source(source: str) -> str:
    # An address in a data root is let through: whoever knows the data sets can say under which id it is registered.
    if source in BUILTIN_NAMES or _DATASET_ID.fullmatch(source) or source.startswith("root://"):
        return source
    raise PydanticCustomError(
        "unknown_source", "must be the id of a dataset (ds_…) or one of {names}", {"names": ", ".join(BUILTIN_NAMES)}
    )


def _list_or_word(value: object) -> str:
    return "list" if isinstance(value, list) else "word"


def _without_repeats(names: list[str]) -> list[str]:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise PydanticCustomError(
            "repeated", "must name each only once, but has {names} twice", {"names": ", ".join(repeated[:5])}
        )
    return names


BY_COLUMN = ("given", "time")
"""Methods of splitting that look at a column."""

Share = Annotated[float, Field(ge=0, le=0.9)]
Seed = Annotated[int, Field(ge=0, le=4_294_967_295)]
FeatureList = Annotated[
    list[ColumnName], Field(min_length=1, max_length=MOST_COLUMNS), AfterValidator(_without_repeats)
]


class Split(SpecModel):
    """How rows are divided: the validation part steers training, the test part is used once, for the final report.

    `given`: the column holds train, validation or test for each row (in any case), and the shares are not used.
    `time`: rows are sorted by the column (numbers, dates or ISO times); the last ones are the test part, those before
    them the validation part. The column of either is no feature.
    """

    method: Literal["auto", "stratified", "random", "given", "time"] = Field(
        default="auto",
        description="`stratified` keeps each class's share in every part; `auto` is stratified for classification, "
        "else random; `given` reads the part from a column; `time` trains on the past and tests on the latest rows.",
        examples=["stratified"],
    )
    column: ColumnName | None = Field(
        default=None, description="The column that `given` and `time` look at.", examples=["date"]
    )
    validation: Share = Field(default=0.2, description="The share of rows for validation.", examples=[0.2])
    test: Share = Field(default=0.0, description="The share of rows for the final test.", examples=[0.1])
    seed: Seed | None = Field(default=None, description="Seed of the split; null = the job's seed.", examples=[7])

    @model_validator(mode="after")
    def _rows_to_train_on(self) -> "Split":
        if self.validation + self.test >= 1:
            raise PydanticCustomError(
                "split",
                "must leave rows for training: validation and test together must be below 1, for example 0.2 and 0.1",
            )
        return self

    @model_validator(mode="after")
    def _column_where_needed(self) -> "Split":
        if (self.column is not None) != (self.method in BY_COLUMN):
            raise PydanticCustomError(
                "split_column",
                "must name a column for the methods given and time, and for these alone, "
                'for example {"method": "time", "column": "date"}',
            )
        return self


class Preprocess(SpecModel):
    """How columns become numbers; statistics are taken from the training part alone."""

    numeric: Literal["standardize", "none"] = Field(
        default="standardize",
        description="`standardize`: minus the mean, divided by the (population) standard deviation.",
        examples=["standardize"],
    )
    categorical: Literal["one_hot"] = Field(
        default="one_hot",
        description="Text becomes one number per category, 1 for its own; a category that the training part does not "
        "have becomes zeros. True and false are always 1 and 0, not scaled.",
    )
    impute: Literal["mean", "median"] = Field(
        default="mean",
        description="With `missing: impute`, what fills a gap among numbers, taken from the training part; among "
        "categories it is the most frequent one.",
        examples=["median"],
    )


class DataSpec(SpecModel):
    """The table, and which of its columns are used how."""

    source: Annotated[PlainText, Field(min_length=1, max_length=200), AfterValidator(_known_source)] = Field(
        description="A built-in set (digits, iris, wine, breast_cancer, diabetes) or the id of an uploaded dataset.",
        examples=["digits"],
    )
    target: ColumnName | None = Field(
        default=None,
        description="The column to predict; null = the built-in set's own target.",
        examples=["species"],
    )
    features: Annotated[
        Annotated[Literal["all"], Tag("word")] | Annotated[FeatureList, Tag("list")],
        Discriminator(_list_or_word),
    ] = Field(
        default="all",
        description="The columns to predict from: `all` = every column but the target and the split's, or a list.",
        examples=["all", ["bill_length_mm", "flipper_length_mm"]],
    )
    split: Split = Field(
        default=Split(), description="How rows are divided.", examples=[{"validation": 0.2, "test": 0.1}]
    )
    missing: Literal["error", "drop", "impute"] = Field(
        default="error",
        description="Rows with an empty, NaN or infinite cell in a used column: refuse the job, leave them out, or "
        "fill the gaps of features. Rows without a target are never filled: `impute` leaves them out.",
        examples=["drop"],
    )
    preprocess: Preprocess = Field(
        default=Preprocess(), description="How columns become numbers.", examples=[{"numeric": "standardize"}]
    )


DataInput = Annotated[
    DataSpec, BeforeValidator(named_by("source"), json_schema_input_type=BuiltinName | str | DataSpec)
]
"""The data; the string `"digits"` is sugar for `{"source": "digits"}`."""


class EffectiveSplit(Split):
    """The split with nothing left open."""

    method: Literal["stratified", "random", "given", "time"] = Field(
        description="How rows are chosen.", examples=["stratified"]
    )
    seed: Seed = Field(description="Seed of the split.", examples=[0])


class EffectiveData(DataSpec):
    """The data with nothing left open: the target, the features in table order, the split."""

    target: ColumnName = Field(description="The column to predict.", examples=["species"])
    features: FeatureList = Field(
        description="The columns to predict from, in the order that the model takes them.",
        examples=[["bill_length_mm", "flipper_length_mm"]],
    )
    split: EffectiveSplit = Field(description="How rows are divided.")
