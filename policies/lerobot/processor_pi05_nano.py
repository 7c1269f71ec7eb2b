"""Processors of π0.5-nano: rename, batch, tokenise, move to the device. The word list is part of the saved processor.

LeRobot does not save a tokenizer object that it is handed, and fetches a named one from the network. This step keeps
its words in its own configuration (`policy_preprocessor.json`), so that a checkpoint folder is complete when moved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lerobot.processor import (
    PolicyProcessorPipeline,
    ProcessorStepRegistry,
    TokenizerProcessorStep,
    make_default_policy_processor_steps,
    make_policy_processor_pipelines,
)
from lerobot.utils.constants import POLICY_PREPROCESSOR_DEFAULT_NAME
from tokenizers import Tokenizer, normalizers
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import BertPreTokenizer
from transformers import PreTrainedTokenizerFast

from robocoach.configs.errors import UserError
from robocoach.policies.lerobot.configuration_pi05_nano import PI05NanoConfig

PADDING, UNKNOWN = "[PAD]", "[UNK]"

COMMON_WORDS = """
a all an and ball banana basket behind beside between big black block blocks blue bottom bowl box brown button
close corner cube cubes cup cupboard door down drawer edge fold from front gray green grey in insert into it
its left lid lift lower marker middle move near next object objects of off on one onto open orange other out
over peg pick pink place plate pot press pull purple push put red reach release remove right screw shelf side
slide small sort stack stir table take the them then three to top toward towards tower tray turn two under up
white wipe with yellow
""".split()  # noqa: SIM905


def words_of(instruction: str) -> list[str]:
    """The lower-case words of an instruction, as the tokenizer sees them."""
    return re.findall(r"[a-z0-9]+", instruction.lower())


def make_vocabulary(instructions: Iterable[str], size: int, parent: list[str] | None = None) -> list[str]:
    """Word list with at most `size` entries: common words and those of the instructions.

    New words are appended to a parent's list, so that the parent's embeddings keep their meaning. Words that no
    longer fit are left out and read as unknown.
    """
    words = list(parent) if parent else [PADDING, UNKNOWN, *COMMON_WORDS]
    known = set(words)
    for instruction in sorted(instructions):
        for word in words_of(instruction):
            if word not in known and len(words) < size:
                words.append(word)
                known.add(word)
    return words


def build_tokenizer(vocabulary: list[str]) -> PreTrainedTokenizerFast:
    """A word-level tokenizer over a list of words; the index is the token."""
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(vocabulary)}, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace("_", " ")])
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PADDING, unk_token=UNKNOWN)


@ProcessorStepRegistry.register(name="robocoach_word_tokenizer")
@dataclass
class WordTokenizerProcessorStep(TokenizerProcessorStep):
    """LeRobot's tokenizer step over a word list that is saved with it."""

    vocabulary: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.vocabulary:
            self.vocabulary = make_vocabulary((), 512)
        self.tokenizer = build_tokenizer(self.vocabulary)
        super().__post_init__()

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "vocabulary": self.vocabulary}


def make_pi05_nano_pre_post_processors(
    config: PI05NanoConfig,
    dataset_stats: dict[str, dict[str, torch.Tensor]] | None = None,
    vocabulary: list[str] | None = None,
) -> tuple[PolicyProcessorPipeline, PolicyProcessorPipeline]:
    """Pre- and postprocessor, by LeRobot's naming rule. Normalisation is the model's own, these leave numbers alone."""
    steps = make_default_policy_processor_steps(config, dataset_stats)
    tokenizer = WordTokenizerProcessorStep(
        max_length=config.tokenizer_max_length, vocabulary=vocabulary or make_vocabulary((), config.vocabulary_size)
    )
    before = [steps.rename_observations, steps.add_batch_dim, steps.normalize, tokenizer, steps.to_device]
    return make_policy_processor_pipelines(input_steps=before, output_steps=[steps.unnormalize, steps.to_cpu])


def read_vocabulary(folder: Path) -> list[str]:
    """The word list of a saved checkpoint. Raises UserError when its preprocessor holds none."""
    path = folder / f"{POLICY_PREPROCESSOR_DEFAULT_NAME}.json"
    try:
        steps = json.loads(path.read_text())["steps"]
        return next(step["config"]["vocabulary"] for step in steps if "vocabulary" in step.get("config", {}))
    except (OSError, ValueError, KeyError, StopIteration) as error:
        raise UserError(f"{path} holds no word list; the checkpoint is incomplete: copy the whole folder") from error
