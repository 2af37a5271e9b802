"""Questions are answered by what the scene holds; annotators mostly agree."""

import re
from collections import Counter

from alignfuse.world.questions import possible_answers, questions
from alignfuse.world.scenes import Scene
from tests.world.slow_reader import is_true, plain

SINGULAR = {"circles": "circle", "squares": "square", "triangles": "triangle", "crosses": "cross"}


def right_answer(text: str, scene: Scene) -> str:
    """By reading the question."""
    words = text.split()
    if words[:2] == ["how", "many"]:
        if words[2] in SINGULAR:
            return str(sum(thing.shape == SINGULAR[words[2]] for thing in scene.things))
        return str(sum(words[2] in ("shapes", thing.colour) for thing in scene.things))
    if words[:2] == ["what", "size"]:
        (found,) = [thing for thing in scene.things if (thing.colour, thing.shape) == (words[4], words[5])]
        return found.size
    if words[:2] == ["what", "colour"]:
        (found,) = [thing for thing in scene.things if thing.shape == words[4]]
        return found.colour
    if words[:2] == ["what", "shape"]:
        (found,) = [thing for thing in scene.things if thing.colour == words[4]]
        return found.shape
    statement = re.sub("^is (there )?", "", text)
    statement = re.sub(
        r"(disc|circle|square|triangle|cross) (to|above|over|below|under)", r"\1 is \2", statement, count=1
    )
    judgements = {is_true(statement, scene, judge=judge) for judge in ("strict", "lenient")}
    assert len(judgements) == 1
    return "yes" if judgements.pop() else "no"


def test_answers_are_right(scenes: list[Scene]) -> None:
    kinds: Counter[str] = Counter()
    for scene in scenes:
        for question in questions(scene):
            assert question.answer == right_answer(question.text, scene), (question.text, scene)
            kinds[question.kind] += 1
    assert kinds["yes/no"] == 2 * len(scenes) and kinds["number"] == kinds["size"] == len(scenes)
    assert min(kinds["colour"], kinds["shape"]) > 0.8 * len(scenes)


def test_ten_annotators_mostly_agree_and_err_in_kind(scenes: list[Scene]) -> None:
    asked = [question for scene in scenes for question in questions(scene)]
    agreeing = Counter(sum(plain(given) == question.answer for given in question.answers) for question in asked)
    assert {len(question.answers) for question in asked} == {10}
    assert min(agreeing) >= 7 and agreeing[10] > 100 and agreeing[9] > 50
    assert {given for question in asked for given in question.answers} <= set(possible_answers())
    assert any(
        given != question.answer and plain(given) == question.answer for question in asked for given in question.answers
    )
    for question in asked:
        if question.kind in ("yes/no", "number"):
            assert all((given in ("yes", "no")) == (question.kind == "yes/no") for given in question.answers)


def test_the_form_of_a_question_does_not_give_the_answer_away(scenes: list[Scene]) -> None:
    asked = [question for scene in scenes for question in questions(scene) if question.kind == "yes/no"]
    forms = {answer: Counter() for answer in ("yes", "no")}
    for question in asked:
        forms[question.answer][" ".join(question.text.split()[:2])] += 1
    for form, count in forms["yes"].items():
        assert abs(count - forms["no"][form]) < 0.7 * count, forms


def test_questions_depend_on_the_scene_alone(scenes: list[Scene]) -> None:
    assert [questions(scene) for scene in scenes[:10]] == [questions(scene) for scene in reversed(scenes[:10])][::-1]
