"""The main text of whole pages, in every script."""

from __future__ import annotations

import math

import pytest
from resiliparse.parse.html import HTMLTree

from stages.html.extraction import extract, kept_of, page_of

SENTENCES = {
    "Latin": "The mill stands beside the river, and its wheel still turns in spring, as the old miller likes to say.",
    "Cyrillic": "Старая мельница стоит у реки, и её колесо всё ещё вращается весной, как любит говорить мельник.",
    "Arabic": "تقف الطاحونة القديمة بجانب النهر، ولا تزال عجلتها تدور في الربيع، كما يحب الطحان العجوز أن يقول.",
    "Thai": "โรงสีเก่าตั้งอยู่ริมแม่น้ำ และกังหันของมันยังคงหมุนในฤดูใบไม้ผลิ ดังที่คนโม่แป้งเฒ่าชอบพูด",
    "Han": "旧磨坊坐落在河边，它的水轮在春天仍然转动，正如老磨坊主常说的那样，孩子们都喜欢来这里玩。",
    "kana": "古い水車小屋は川のほとりに立っていて、春になると水車は今でも回ると、年老いた粉屋はよく言う。",
    "Hangul": "오래된 방앗간은 강가에 서 있고, 봄이 되면 그 바퀴는 아직도 돌아간다고 늙은 방앗간 주인은 말한다.",
    "Devanagari": "पुरानी चक्की नदी के किनारे खड़ी है, और उसका पहिया वसंत में अब भी घूमता है, जैसा बूढ़ा कहता है।",
}
PAGE = """<html><head><title>t</title></head><body><nav><ul>{menu}</ul></nav><div class="content"><article>
<h1>{title}</h1>{body}</article></div><aside class="sidebar related"><ul>{menu}</ul></aside>
<footer><p>© 2024 Example</p></footer></body>"""
MENU = "".join(f"<li><a href='/{at}'>Item {at}</a></li>" for at in range(12))


@pytest.mark.parametrize("script", SENTENCES)
def test_the_article_stays_whole_and_the_menus_go(script: str) -> None:
    sentence = SENTENCES[script]
    body = "".join(f"<p>{sentence} {sentence}</p>" for _ in range(8))
    text = extract(PAGE.format(menu=MENU, title=sentence[:20].strip(), body=body)).text
    assert text.count(sentence) == 16
    assert "Item 3" not in text
    assert "Example" not in text


@pytest.mark.parametrize("script", SENTENCES)
def test_a_word_in_nodes_of_one_character_is_whole(script: str) -> None:
    sentence = SENTENCES[script]
    nodes = "".join(f"<b>{char}</b>" if at % 2 else char for at, char in enumerate(sentence))
    body = f"<p>{sentence * 2}</p>" * 5 + f"<p>{nodes}</p>" + f"<p>{sentence * 2}</p>" * 5
    assert extract(PAGE.format(menu=MENU, title="x", body=body)).text.count(sentence) == 21


def test_ruby_cells_and_items_of_one_character() -> None:
    sentence = SENTENCES["kana"]
    ruby = "<p><ruby>東京<rt>とうきょう</rt></ruby>へ<ruby>行<rt>い</rt></ruby>きました。" + sentence
    table = "<table><tr><th>火<th>水<tr><td>1<td>2<tr><td>赤<td>青</table>"
    body = f"<p>{sentence * 3}</p>" * 4 + ruby + table + "<ul><li>木<li>金</ul>" + f"<p>{sentence * 3}</p>" * 4
    text = extract(PAGE.format(menu=MENU, title="x", body=body)).text
    for wanted in ("東京へ行きました。", "火 | 水\n1 | 2\n赤 | 青", "- 木\n- 金"):
        assert wanted in text


def test_posts_that_only_readers_without_scripts_see() -> None:
    posts = "".join(f"<div class=post><p>{SENTENCES['Latin']} {at}.</p></div>" for at in range(9))
    assert extract(f"<body><div id=app></div><noscript>{posts}</noscript>").text.count("The mill") == 9


def test_all_text_and_its_share() -> None:
    html = PAGE.format(menu=MENU, title="x", body=f"<p>{SENTENCES['Latin']}</p>" * 9)
    whole, main = extract(html, main_content=False), extract(html)
    assert "Item 3" in whole.text
    assert whole.share == 1.0
    assert 0.5 < main.share < 1.0
    assert math.isnan(extract("").share)


def test_a_page_of_little_text_keeps_its_likelier_half() -> None:
    page = page_of("<p>One.<p>Two.<p>Three.<p>Four.")
    assert 2 <= kept_of(page).sum() <= 4
    assert str(HTMLTree.parse("<p>")) == page_of("<p>").source.decode()
