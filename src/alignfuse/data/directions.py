# ruff: noqa: RUF001
"""Words that a mirrored picture makes false: sides, turns, compass, clock times, moon phases, maps, flags, writing.

A star after a word stands for any ending. A star on both sides means anywhere, for languages that write words without
spaces or join them with others. A word too many costs a flip, a word too few makes a caption lie.
"""

import functools
import re
import unicodedata
from collections.abc import Iterable

ENGLISH = """
left* topleft* bottomleft* upperleft* lowerleft* right* topright* bottomright* upperright* lowerright* starboard*
portside *clockwise* *o'clock* *o’clock* oclock thirty
east eastern* easterl* eastward* west western* westerl* westward* *northeast* *northwest* *southeast* *southwest*
dextr* sinist* situs rul rml rll lul lll
waxing waning quarter
letter letters lettering word words text texts written writing handwrit* says saying reads spell* inscri* alphabet*
map maps flag flags semaphore*
number numbers digit digits numeral*
"""

# Left and right: adjectives, adverbs and nouns with their endings.
SIDES = """
links* linke linken linker* linkes linkem linkse rechts* rechte rechten rechter* rechtes rechtem regs regter*
*uhrzeiger* gauche* droit droite droits droites izquierd* derech* drech* zurd* esquerd* dereit* direit* esquerr* dret*
dreit* drèt* sanco sanca sinistr* destra destro destre destri stâng* stang* dreapt* drept* vänster* vänstra* höger*
högra* venstre* højre* høyre* høgre* vinstr* hægr* vasem* vasen oike* vasak* parem* bal balra balról balol* jobb*
kreis* labā labaj* labi kair* dešin* lewo lewa lewą lewe* lewy* prawo prawa prawą prawe* prawy* lijev* ulijevo
nalijevo slijeva desn* udesno nadesno zdesna levo* leva levi leve levem levega levá* levé* levý* levou vlevo nalevo
doleva zleva ľav* vľavo naľavo doľava zľava prav* vprav* naprav* doprava zprava sprava лева* лево* леву* левы* леви*
слева злева влево налево улева прав* вправо направо справа управа лів* зліва вліво наліво ліворуч ляв* наляво вляво
отляво дясн* надясно вдясно отдясно десн* надесно αριστερ* δεξ* sol sola solda* soldan solun* sağ* majt* djatht*
ezker* eskuin* eskuma* chwith dde clé chlé deas dheas dheis clì chlì kleiz dehou xellug* lemin* maldekstr* dekstr*
kiri kanan kiwa tengen kaliwa* trái phải kushoto kulia *nxele* *kudla* *zelma* *yefus* *שמאל* *ימין* *ימנ* *يسار*
*أيسر* *ايسر* *يسرى* *يمين* *أيمن* *ايمن* *يمنى* *چپ* *راست* *بائیں* *دائیں* *بایاں* *دایاں* *बाए* *बाय* *बाई* *दाए*
*दाय* *दाई* *दाहिन* *डाव* *उजव* *ડાબ* *જમણ* *ਖੱਬ* *ਸੱਜ* *বাম* *বাঁ* *ডান* *இடது* *இடப்* *வலது* *வலப்* *ఎడమ* *కుడి*
*ಎಡ* *ಬಲ* *ഇടത* *വലത* *ലെഫ്റ്റ* *റൈറ്റ* *වම්* *දකුණ* *左* *右* *ひだり* *みぎ* *时针* *時針* *時計回り*
*왼* *오른* *좌측* *우측* *좌우* *ซ้าย* *ขวา* *ຊ້າຍ* *ຂວາ* *ឆ្វេង* *ស្ដាំ* *ស្តាំ* *ဘယ်* *ညာ* *მარცხ* *მარჯვ*
*ձախ* *աջ* *ግራ* *ቀኝ*
"""

# The nouns for letter, number and digit.
WRITING = """
buchstab* zahl zahlen ziffer* syfer* cijfer* getal lettre* chiffre* letra* lletra* lettera lettere létar* liter*
número* numer* númer* nombre* númber* nùmar* cifr* bokstav* bogstav* siffr* stafur* tallet talet töluna kirja* numero*
betű* szám* burt* litir* asekkil* ciparam* písmen* slov* broj* črk* cyfr* числ* цифр* букв* літар* літер* лічб* слово
број* γράμμα* γραμμα* αριθμ* αριθμό* harf* shkronj* numri* huruf* nomor* nombor* chữ *האות* *حرف* *رقم* *अक्षर*
*संख्या* *અક્ષર* *字母* *文字* *数字* *數字* *アルファベット* *すうじ*
*글자* *숫자* *อักษร* *เลข* *អក្សរ* ასო ციფრ* *տառ* *թվի* *ፊደል* *ቁጥር*
"""


def names_direction(captions: Iterable[str], more: tuple[str, ...] = ()) -> bool:
    """Whether one of the captions holds such a word, or one of `more` (same notation)."""
    whole, beginnings, parts = _lists(more)
    for caption in captions:
        text = _plain(caption)
        words = re.findall(r"\w+", text)
        if not whole.isdisjoint(words) or any(word.startswith(beginnings) for word in words):
            return True
        if any(part in text for part in parts):
            return True
    return False


@functools.cache
def _lists(more: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...], tuple[str, ...]]:
    """Words that match whole, beginnings of words, and parts found anywhere."""
    words = [_plain(word) for word in (*ENGLISH.split(), *SIDES.split(), *WRITING.split(), *more)]
    parts = tuple(word.strip("*") for word in words if word.startswith("*"))
    beginnings = tuple(word[:-1] for word in words if word.endswith("*") and not word.startswith("*"))
    return frozenset(word for word in words if "*" not in word), beginnings, parts


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()
