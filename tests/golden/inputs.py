"""The fixed inputs of the goldens of stages. All text was written for this project.

Adding inputs is free. Changing one makes its recorded outputs void, so give a new case a new name instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from shards.schema import DOCUMENT, UNKNOWN_LANGUAGE


@dataclass(frozen=True)
class Input:
    """A document as a stage may find it."""

    text: str | None = None
    payload: bytes | None = None
    media_type: str | None = None
    url: str | None = None
    host: str | None = None
    language: str = UNKNOWN_LANGUAGE
    domain: str = "web"
    dropped_by: str | None = None
    reason: str | None = None

    @property
    def key(self) -> str:
        """What tells this document from others; a new attribute changes no key where it has its default."""
        return repr(sorted((name, value) for name, value in vars(self).items() if value != getattr(Input, name)))


def batch_of(inputs: Mapping[str, Input]) -> pa.RecordBatch:
    """Return the documents as one batch; the doc_id of each is a hash of its name, so that no case moves another."""
    rows: list[dict[str, Any]] = []
    for name, one in inputs.items():
        doc_id = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1
        rows.append({**vars(one), "doc_id": doc_id, "source_index": 0, "offset": 0, "failed": False})
    return pa.RecordBatch.from_pylist(rows, schema=DOCUMENT)


_ENGLISH: Final = (
    "The old mill stands where the road leaves the village and follows the river to the east. For two hundred years "
    "it ground the grain of every farm in the valley, and the children were told that its wheel had never stopped. "
    "When the new dam was built, the water fell by the height of a man, and that was the end of the work. The family "
    "stayed in the house, and with the stones that were left they built a wall around the garden. Today there is a "
    "small museum on the upper floor. You can see the gears, the sacks and the book in which the miller wrote what he "
    "owed to whom."
)
_GERMAN: Final = (
    "Die alte Mühle steht dort, wo die Straße das Dorf verlässt und dem Fluss nach Osten folgt. Zweihundert Jahre lang "
    "mahlte sie das Korn aller Höfe im Tal, und den Kindern erzählte man, dass ihr Rad niemals stillgestanden habe. "
    "Als der neue Damm gebaut wurde, sank das Wasser um die Höhe eines Mannes, und damit war die Arbeit zu Ende."
)
_CHINESE: Final = (
    "老磨坊立在村口的路边，那里的小路沿着河向东延伸。两百年来，它一直为山谷里的每一户人家磨面，"
    "人们告诉孩子们，水轮从来没有停过。新的水坝建成以后，水位下降了一个人的高度，磨坊的工作也就结束了。"
)
_CODE: Final = '''def fibonacci(count: int) -> list[int]:
    """Return the first ``count`` numbers."""
    found = [0, 1]
    while len(found) < count:
        found.append(found[-1] + found[-2])
    return found[:count]


if __name__ == "__main__":
    for index, number in enumerate(fibonacci(12)):
        print(f"{index:>3}: {number}")
'''

TEXTS: Final[dict[str, Input]] = {
    "null": Input(),
    "empty": Input(""),
    "white space": Input(" \t\r\n\u00a0\u3000\u2003\u2028 \n"),
    "one letter": Input("x", language="en"),
    "one sentence": Input("The miller sleeps.", language="en"),
    "English": Input(_ENGLISH, language="en"),
    "English, upper case": Input(_ENGLISH.upper(), language="en"),
    "English, spaces doubled": Input(_ENGLISH.replace(" ", "  ") + "\n", language="en"),
    "English, CRLF": Input(_ENGLISH.replace(". ", ".\r\n\r\n"), language="en"),
    "English, a line per sentence": Input(_ENGLISH.replace(". ", ".\n"), language="en"),
    "English, of domain code": Input(_ENGLISH, language="en", domain="code"),
    "English, long": Input(
        "\n\n".join(_ENGLISH.replace("two hundred", f"{n} hundred").replace("mill", f"mill {n}") for n in range(2, 12)),
        language="en",
    ),
    "German": Input(_GERMAN, language="de"),
    "German, decomposed": Input("Die Mu\u0308hle, die Ho\u0308fe und der Fluß im Tal. " * 3, language="de"),
    "French": Input(
        "Le vieux moulin se dresse à l'endroit où la route quitte le village et suit la rivière vers l'est. Pendant "
        "deux cents ans, il a moulu le grain de toutes les fermes de la vallée ; aujourd'hui, c'est un petit musée.",
        language="fr",
    ),
    "Russian": Input(
        "Старая мельница стоит там, где дорога выходит из деревни и идёт вдоль реки на восток. Двести лет она молола "
        "зерно всех хозяйств долины, и детям говорили, что её колесо никогда не останавливалось.",
        language="ru",
    ),
    "Greek": Input(
        "Ο παλιός μύλος στέκεται εκεί όπου ο δρόμος αφήνει το χωριό και ακολουθεί το ποτάμι προς την ανατολή.",
        language="el",
    ),
    "Arabic": Input(
        "تقف الطاحونة القديمة حيث يغادر الطريق القرية ويتبع النهر نحو الشرق، وقد طحنت حبوب الوادي مئتي عام.",
        language="ar",
    ),
    "Hebrew": Input("הטחנה הישנה עומדת במקום שבו הדרך עוזבת את הכפר והולכת לאורך הנהר מזרחה.", language="he"),
    "Hindi": Input(
        "पुरानी चक्की वहाँ खड़ी है जहाँ सड़क गाँव से निकलकर नदी के साथ पूर्व की ओर जाती है। दो सौ साल तक उसने घाटी का अनाज पीसा।",
        language="hi",
    ),
    "Thai": Input("โรงสีเก่าตั้งอยู่ตรงที่ถนนออกจากหมู่บ้านและเลียบแม่น้ำไปทางทิศตะวันออก มันบดข้าวให้ทุกบ้านในหุบเขา", language="th"),
    "Chinese": Input(_CHINESE, language="zh"),
    "Chinese, repeated": Input("磨坊的水轮停了。" * 12, language="zh"),
    "Japanese": Input(
        "古い水車小屋は、道が村を出て川に沿って東へ向かうところに立っている。二百年のあいだ、谷のすべての農家の穀物をひいてきた。",
        language="ja",
    ),
    "Korean": Input(
        "오래된 물레방아는 길이 마을을 벗어나 강을 따라 동쪽으로 이어지는 곳에 서 있다. "
        "이백 년 동안 골짜기의 곡식을 빻았다.",
        language="ko",
    ),
    "English and Japanese": Input("The word 水車 (suisha) means water mill, and 小屋 is a hut. " * 4, language="en"),
    "emoji": Input("👩‍👩‍👧‍👦 🇫🇷 👍🏽 the mill 🏚️ and the wheel 🎡, then 1️⃣ 2️⃣ 3️⃣ " * 5, language="en"),
    "code": Input(_CODE, language="en", domain="code"),
    "JSON": Input('{"mill": {"stones": 2, "wheel": null}, "owed": [1.5, 2e-3, true]}\n' * 6, domain="code"),
    "bullets": Input("\n".join(f"- item {n} of the list that the miller kept" for n in range(12)), language="en"),
    "bullets of other shapes": Input(
        "\n".join(f"{mark} the wheel and the stone" for mark in "•‣●○▪*–·"), language="en"
    ),
    "bullets but one line": Input("\n".join(["* the stone"] * 16 + ["that was all of it"]), language="en"),
    "ellipsis lines": Input(
        "\n".join(f"the part about the {n}th stone goes on..." for n in range(9)) + "\nand\nso\non",
        language="en",
    ),
    "ellipses": Input("and then… the wheel... and… that was… the end of it... " * 8, language="en"),
    "hashtags": Input(
        "#mill #river the #wheel and #stone of the #valley # # ## " * 8 + "in the evening", language="en"
    ),
    "a long word": Input("w" * 5_000, language="en"),
    "long words": Input(
        "Donaudampfschifffahrtsgesellschaftskapitän Rindfleischetikettierungsgesetz " * 30, language="de"
    ),
    "short words": Input("a b to be or x y it is at z " * 12 + "wheel", language="en"),
    "numbers": Input("1 22 333 4,444 5.5 6e7 0x1F 2026-11-30 12:30 ٣٤٥ १२३ １２３ " * 8),
    "punctuation": Input("!?;:,.-_()[]{}<>/\\|@$%^&*~`'\" «» “” ‘’ — – … " * 6),
    "a repeated line": Input("The wheel had never stopped in all those years.\n" * 9 + _ENGLISH, language="en"),
    "a repeated paragraph": Input("\n\n".join([_ENGLISH[:230]] * 4 + [_GERMAN]), language="en"),
    "a repeated phrase": Input("the river and the mill and the valley and " * 25, language="en"),
    "control characters": Input(
        "the\0mill\x1b[1m and\x07 the\x7f wheel\x85of the\u2028old\u2029house" + " the mill" * 9
    ),
    "zero-width and bidi": Input("the\u200bmi\u200dll\u00ad and \u202eleehw\u202c \ufeffthe \u2066stone\u2069 " * 9),
    "unassigned and private": Input("\ue000\uf8ff\ufdd0\uffff\U000e0041\U0010ffff the mill and the wheel " * 8),
    "compatibility forms": Input("ﬁne ｍｉｌｌ Ⅷ ½ ℌ ① ㎏ ＴＨＥ ＷＨＥＥＬ ｶﾞ " * 8, language="en"),
    "stacked marks": Input("t" + "\u0301\u0323" * 80 + "he mi\u0308ll and the wheel " * 9, language="en"),
    "model's special words": Input(
        "<s> the mill </s> <unk> and <UNK> the <|endoftext|> wheel </s> " * 8, language="en"
    ),
    "no stop words": Input(
        " ".join(f"mill{n:02d} stone{n:02d} wheel{n:02d} river{n:02d}" for n in range(20)), language="en"
    ),
    "near copy of English": Input(_ENGLISH.replace("museum", "exhibition").replace("garden", "yard"), language="en"),
    "failed before": Input(_ENGLISH, language="en", dropped_by="earlier_v1", reason="earlier"),
}


def _words(count: int, kind: str = "w") -> str:
    """Return words that occur nowhere else."""
    return " ".join(f"{kind}{n:04d}" for n in range(count))


def _scattered(phrase: str, times: int, gap: int) -> str:
    return " ".join(f"{phrase} {_words(gap, f'x{n:02d}y')}" for n in range(times))


REPETITIONS: Final[dict[str, Input]] = {
    # Forty words ten times, so that nine parts of ten are duplicates, and other words that dilute them.
    "95% is a copy": Input(" ".join([_words(40, "r")] * 20)),
    "80% is a copy": Input(" ".join([_words(40, "r")] * 10 + [_words(50)])),
    "60% is a copy": Input(" ".join([_words(40, "r")] * 10 + [_words(200)])),
    "40% is a copy": Input(" ".join([_words(40, "r")] * 10 + [_words(500)])),
    "20% is a copy": Input(" ".join([_words(40, "r")] * 10 + [_words(1_400)])),
    "5% is a copy": Input(" ".join([_words(40, "r")] * 2 + [_words(700)])),
    "half is one 2-gram": Input(_scattered("mill wheel", 20, 1)),
    "a third is one 3-gram": Input(_scattered("mill wheel stone", 20, 5)),
    "a sixth is one 4-gram": Input(_scattered("mill wheel stone river", 20, 16)),
    "short paragraphs repeated": Input("the mill\n\n" * 4 + "\n".join(_words(9, f"l{n:02d}") for n in range(20))),
    "one long line repeated": Input(
        "\n".join([_words(60, "r"), *(_words(5, f"l{n:02d}") for n in range(12)), _words(60, "r")])
    ),
    "one long paragraph repeated": Input("\n\n".join([_words(60, "r"), _words(90), _words(60, "r")])),
}


def _page(body: str, head: str = "", codec: str = "utf-8") -> bytes:
    return f"<!DOCTYPE html><html><head>{head}</head><body>{body}</body></html>".encode(codec)


_ARTICLE: Final = (
    "<nav><a href=/>Home</a> <a href=/mills>Mills</a></nav><header><h1>Mills of the valley</h1></header>"
    f"<main><article><h2>The old mill</h2><p>{_ENGLISH[:200]}</p><p>{_ENGLISH[200:]}</p>"
    "<ul><li>two stones<li>one wheel</ul><table><tr><th>year<th>sacks<tr><td>1820<td>4,100</table></article>"
    "<div class=comments><h3>Comments</h3><p>My grandfather worked there.</p></div></main>"
    "<aside>Subscribe to our letter</aside><footer>© The valley</footer>"
)
_SHORT: Final = "<p>{}</p>"
_RUSSIAN: Final = _SHORT.format("Старая мельница стоит там, где дорога выходит из деревни.")
_JAPANESE: Final = _SHORT.format("古い水車小屋は、道が村を出て川に沿って東へ向かうところに立っている。")

PAGES: Final[dict[str, Input]] = {
    "has text already": Input("Text of an earlier stage.", url="http://a.example/"),
    "neither text nor payload": Input(),
    "an empty page": Input(payload=b"", media_type="text/html"),
    "white space only": Input(payload=b" \n\t ", media_type="text/html"),
    "no text": Input(payload=_page("<script>var a = '<p>text</p>'</script><style>p {}</style>")),
    "an article": Input(payload=_page(_ARTICLE, "<title>Mills</title><meta charset=utf-8>"), media_type="text/html"),
    "UTF-8 with a mark, header wrong": Input(
        payload=b"\xef\xbb\xbf" + _page(_RUSSIAN), media_type="text/html; charset=windows-1251"
    ),
    "windows-1251 by header": Input(
        payload=_page(_RUSSIAN, "", "cp1251"), media_type="text/html; charset=windows-1251"
    ),
    "KOI8-R by meta": Input(payload=_page(_RUSSIAN, "<meta charset=koi8-r>", "koi8-r"), media_type="text/html"),
    "Shift_JIS by http-equiv": Input(
        payload=_page(_JAPANESE, "<meta http-equiv=Content-Type content='text/html; charset=Shift_JIS'>", "cp932")
    ),
    "EUC-JP, not declared": Input(payload=_page(_JAPANESE * 4, "", "euc_jp"), media_type="text/html"),
    "GB2312 by meta": Input(payload=_page(f"<p>{_CHINESE}", "<meta charset=gb2312>", "gb18030")),
    "UTF-16 by its mark": Input(payload=b"\xff\xfe" + _page(_RUSSIAN, "", "utf-16-le")),
    "latin-1, not declared": Input(payload=_page(_SHORT.format("Die Mühle, die Höfe und der Fluß."), "", "latin-1")),
    "an unknown charset": Input(payload=_page(_SHORT.format("The old mill")), media_type="text/html; charset=rot13"),
    "bytes that are no text": Input(payload=b"\xff\x00\xfe<p>x\x80\x81</p>\x00", media_type="text/html"),
    "unclosed tags": Input(payload=b"<p>one<p>two<b>three<i>four</b>five<td>six<div>seven", media_type="text/html"),
    "entities": Input(payload=_page("<p>a &amp; b &lt; c &nbsp; &eacute; &#8364; &#x1F600; &unknown; &#0;</p>")),
    "preformatted": Input(payload=_page("<pre>  two\n\n   lines</pre><p>a<br>b<br/>c</p><hr><p>d")),
    "comments and CDATA": Input(payload=_page("<p>a<!-- <p>b</p> -->c<![CDATA[d]]></p><svg><![CDATA[e]]></svg>")),
    "CJK in single nodes": Input(payload=_page("<p>漢<b>字</b>です。</p><p>水<i>車</i></p>")),
    "forms and hidden": Input(payload=_page("<form><input value=a><button>b</button></form><p hidden>c</p><p>d</p>")),
    "svg and math": Input(payload=_page("<svg><title>t</title><text>s</text></svg><math><mi>x</mi></math><p>end")),
    "frames": Input(payload=b"<html><frameset><frame src=a></frameset><noframes>no frames</noframes></html>"),
    "nested lists": Input(payload=_page("<ul><li>item" * 40), media_type="text/html"),
    "nested too deep": Input(payload=b"<div>" * 6_000 + b"text", media_type="text/html"),
    "deep and many": Input(payload=_page("<ul>" * 400 + "<li>" * 30_000), media_type="text/html"),
    "too many attributes": Input(payload=b"<p " + b" ".join(b"a%d=1" % n for n in range(12_000)) + b">text</p>"),
    "many paragraphs": Input(payload=_page("<p>a short one" * 5_000), media_type="text/html"),
    "failed before": Input(payload=_page("<p>text"), dropped_by="earlier_v1", reason="earlier"),
}

URLS: Final[dict[str, Input]] = {
    "no URL": Input(),
    "no URL, host listed": Input(host="games.example"),
    "empty": Input(url=""),
    "listed": Input(url="http://games.example/"),
    "listed, in upper case with user and port": Input(url="HTTPS://user:pw@GAMES.Example.:8080/a?b#c"),
    "a subdomain": Input(url="https://a.b.games.example/x"),
    "ends alike": Input(url="http://notgames.example/"),
    "a parent of a listed domain": Input(url="http://example/"),
    "listed URL": Input(url="http://portal.example/play"),
    "below a listed URL": Input(url="http://portal.example/play/chess?x=1"),
    "beside a listed URL": Input(url="http://portal.example/player"),
    "listed URL on a mirror": Input(url="http://www2.portal.example/play/"),
    "listed URL, escaped": Input(url="http://portal.example/%70lay?a"),
    "another page of that host": Input(url="http://portal.example/news"),
    "international": Input(url="http://mühle.example/"),
    "punycode": Input(url="http://xn--mhle-0ra.example/"),
    "address": Input(url="http://192.0.2.7/a"),
    "address that ends alike": Input(url="http://1.192.0.2.7/"),
    "IPv6": Input(url="http://[2001:DB8::1]:80/"),
    "white category": Input(url="http://bank.example/"),
    "undeclared category": Input(url="http://press.example/"),
    "in a plain file": Input(url="http://spam.example/a"),
    "path in a plain file": Input(url="http://ads.example/banner/1.gif"),
    "backslashes": Input(url="http:\\\\games.example\\a"),
    "no scheme": Input(url="//games.example/a"),
    "not hierarchical": Input(url="urn:isbn:games.example"),
    "broken": Input(url="http://[::1"),
    "long": Input(url="http://portal.example/" + "a/" * 20_000),
    "failed before": Input(url="http://games.example/", dropped_by="earlier_v1", reason="earlier"),
    "of domain books": Input(url="http://games.example/", domain="books"),
}
