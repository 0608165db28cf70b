"""Pages that a crawl would be better without, generated: each kind is to be caught by one stage of the chain."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Article:
    """A title and paragraphs of running text."""

    title: str
    paragraphs: tuple[str, ...]

    @property
    def text(self) -> str:
        """Everything, with a blank line between paragraphs."""
        return "\n\n".join((self.title, *self.paragraphs))

    @property
    def words(self) -> int:
        """Words between white space, without the title's."""
        return sum(len(paragraph.split()) for paragraph in self.paragraphs)


_GLUE: Final = ("the", "of", "and", "to", "with", "a", "in", "that")
_GOODS: Final = ("watches", "sunglasses", "handbags", "sneakers", "headphones", "perfume")
_PHRASES: Final = (
    "cheap {0} online",
    "buy cheap {0} online with free delivery",
    "the best {0} to buy and the cheapest {0} online",
    "cheap {0} with discount and the best {0} online",
)
_TOWNS: Final = ("Alderby", "Brackwater", "Carnholm", "Dunmere", "Eastwick", "Fenbridge", "Garside", "Holmsey")
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NUMBERS: Final = ("five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
# Every sentence once per notice, so that none repeats itself: only a reader of others can predict it.
_NOTICE: Final = (
    "The ferry from {town} leaves the north pier at {number} in the morning and returns before sunset.",
    "Passengers are asked to wait behind the yellow line until the crew has secured both ropes.",
    "Tickets can be bought on board, at the kiosk beside the car park, or from the harbour office.",
    "Children under {number} years travel free when they are accompanied by an adult.",
    "Bicycles are carried at no extra charge as long as there is room on the lower deck.",
    "Dogs must be kept on a short lead and are not allowed inside the heated cabin.",
    "During strong winds the service may be shortened or replaced by a bus along the coast road.",
    "Please listen to the announcements and follow the instructions of the staff at all times.",
    "Lost property is kept for {number} weeks and can be collected every {day} afternoon.",
    "The small café near the landing stage serves coffee, soup and sandwiches throughout the season.",
    "Groups of more than twenty people should telephone the office one day before they travel.",
    "A ramp for wheelchairs is available, and our crew will be glad to help you use it.",
    "Season tickets for residents of {town} are sold each {day} and remain valid until the end of March.",
    "We wish you a pleasant crossing and look forward to welcoming you again.",
)


def notice(rng: random.Random) -> Article:
    """Return a ferry notice made of stock sentences: to a model that has read others, far too predictable."""
    town = rng.choice(_TOWNS)
    sentences = [line.format(town=town, number=rng.choice(_NUMBERS), day=rng.choice(_DAYS)) for line in _NOTICE]
    return Article(f"Notice to passengers in {town}", (" ".join(sentences[:7]), " ".join(sentences[7:])))


def word_salad(rng: random.Random, vocabulary: Sequence[str], words: int) -> Article:
    """Return sentences of words drawn without any regard to each other, rare words as often as common ones."""
    paragraphs = []
    for _ in range(3):
        sentences = []
        for _ in range(words // 36):
            drawn = [rng.choice(_GLUE) if rng.random() < 0.12 else rng.choice(vocabulary) for _ in range(12)]
            sentences.append(" ".join(drawn).capitalize() + ".")
        paragraphs.append(" ".join(sentences))
    return Article(" ".join(rng.choice(vocabulary) for _ in range(4)).capitalize(), tuple(paragraphs))


def keyword_spam(rng: random.Random, words: int) -> Article:
    """Return a shop page that says little but the few words it wants to be found under."""
    goods = rng.choice(_GOODS)
    phrases: list[str] = []
    while sum(len(phrase.split()) for phrase in phrases) < words:
        phrases.append(rng.choice(_PHRASES).format(goods))
    third = len(phrases) // 3
    parts = (phrases[:third], phrases[third : 2 * third], phrases[2 * third :])
    return Article(f"Cheap {goods} online", tuple(", ".join(part).capitalize() + "." for part in parts))


def one_sentence(rng: random.Random, times: int) -> Article:
    """Return a page that repeats one sentence, as a broken template does."""
    town, day = rng.choice(_TOWNS), rng.choice(_DAYS)
    sentence = f"The museum of {town} is closed on {day} and we have to ask all visitors to come back with patience."
    return Article(f"Museum of {town}", tuple(" ".join([sentence] * 4) for _ in range(times // 4)))


def hashtags(rng: random.Random, words: int) -> Article:
    """Return a post of a few sentences that ends in a wall of hashtags."""
    tags = [f"#{rng.choice(_GOODS)}{rng.choice(('', 'deal', 'sale', 'style', 'love'))}" for _ in range(words)]
    town = rng.choice(_TOWNS)
    opening = (
        f"This is what we have been waiting for all spring, and now that the sun is back in {town} you can see it "
        "in the window of our little shop beside the market. Come and try it on with your friends before the weekend, "
        "because we have only a few of them left and nobody knows when the next delivery will be here. If you would "
        "like us to put one aside for you, just leave a comment with your name and the size that you need."
    )
    return Article("The look of the day is here", (opening, " ".join(tags)))


def stub(rng: random.Random) -> Article:
    """Return a page of one short sentence: enough to tell its language, too little to learn from."""
    town = rng.choice(_TOWNS)
    return Article(
        f"{town} allotments", (f"The page of the {town} allotment society will be back with news of the spring fair.",)
    )
