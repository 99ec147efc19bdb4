"""The checks themselves: each finds what it is there to find."""

import pathlib
import unittest

import check_layers
import check_pages
import check_size
import check_testing
import check_words
import tree


def layer(path, bracket, target):
    path = pathlib.Path(path)
    return check_layers.check_include(path, *check_layers.room_of(path),
                                      bracket, target)


class Layers(unittest.TestCase):
    def test_allowed(self):
        for path, bracket, target in (
                ("core/plan/a.c", '"', "layout/layout.h"),
                ("core/plan/a.c", '"', "plan/b.h"),
                ("core/exec/a.c", '"', "ops/mover.h"),
                ("core/base/a.c", "<", "pthread.h"),
                ("core/vps/a.h", "<", "dynatrain/box.h"),
                ("rollout/a.c", '"', "nn/nn.h"),
                ("rollout/a.c", '"', "rollout/engine.h"),
                ("bridge/device/host/a.c", "<", "dnnl.h"),
                ("bridge/device/host/a.c", '"', "device/host/b.h"),
                ("bridge/wire/a.c", '"', "data/sample.h"),
                ("lib/a.c", '"', "control/client.h"),
                ("cli/a.c", '"', "format/job.h"),
                ("tests/unit/a.c", "<", "jansson.h")):
            self.assertIsNone(layer(path, bracket, target), (path, target))

    def test_refused(self):
        for path, bracket, target in (
                ("core/plan/a.c", '"', "sched/sched.h"),
                ("core/layout/a.c", '"', "plan/plan.h"),
                ("core/nn/a.c", '"', "plan/plan.h"),
                ("core/ops/a.h", '"', "vps/model.h"),
                ("core/vps/a.c", '"', "wire/wire.h"),
                ("core/vps/a.c", '"', "bridge/wire/wire.h"),
                ("core/vps/a.c", "<", "zmq.h"),
                ("core/vps/a.c", "<", "argp.h"),
                ("core/vps/a.c", '"', "../plan/plan.h"),
                ("core/vps/a.c", '"', "no_such_neighbour.h"),
                ("core/include/dynatrain/a.h", '"', "base/error.h"),
                ("core/include/dynatrain/a.h", "<", "pthread.h"),
                ("rollout/a.c", '"', "trainer/trainer.h"),
                ("rollout/a.c", '"', "comm/shm/shm.h"),
                ("score/a.c", "<", "jansson.h"),
                ("trainer/a.c", '"', "rollout/engine.h"),
                ("bridge/wire/a.c", '"', "control/control.h"),
                ("bridge/mover/direct/a.c", '"', "comm/shm/shm.h"),
                ("bridge/device/host/a.c", '"', "trainer/trainer.h"),
                ("lib/a.c", '"', "nn/nn.h"),
                ("lib/a.c", '"', "format/safetensors.h"),
                ("lib/a.c", '"', "rollout/engine.h"),
                ("cli/a.c", "<", "zmq.h")):
            self.assertIsNotNone(layer(path, bracket, target), (path, target))

    def test_unknown_room(self):
        self.assertFalse(check_layers.known_room("core", "cache"))
        self.assertFalse(check_layers.known_room("bridge", "http"))
        self.assertTrue(check_layers.known_room("bridge", "comm/gloo"))


def words(path, text):
    path = pathlib.Path(path)
    return list(check_words.text_findings(path, text)) + \
        list(check_words.code_findings(path, text))


class Words(unittest.TestCase):
    def test_found(self):
        for path, text in (
                ("core/a.c", "strcpy(a, b);"), ("core/a.c", "x = getenv(n);"),
                ("core/a.c", "exit(1);"), ("core/a.c", "/* TO" "DO */"),
                ("core/a.c", 'open("/wo' 'rk/x");'),
                ("docs/a.md", "see https://pypi" ".org/x"),
                ("scripts/a.sh", "cd /ro" "ot/x")):
            self.assertTrue(words(path, text), text)

    def test_fine(self):
        for path, text in (
                ("core/a.c", "/* strcpy(a, b) is banned */"),
                ("core/a.c", 'say("exit(1)");'), ("cli/main.c", "exit(1);"),
                ("core/a.c", "/* exit: the parent is gone */\n_exit(1);"),
                ("core/a.c", "n = my_getenv_count(x);"),
                ("core/base/env.c", "getenv(name);"),
                ("core/a.c", "workdir/x; network/y;")):
            self.assertEqual(words(path, text), [], text)


class Size(unittest.TestCase):
    def test_functions_are_found_with_their_names(self):
        code = ("static int add(int a,\n               int b)\n{\n    if (a) {\n"
                "    }\n    return a + b;\n}\n\nstruct x {\n    int y;\n};\n"
                "#define A(x) 1\nvoid g(void)\n{\n}\n")
        self.assertEqual(list(check_size.functions(code)),
                         [("add", 3, 5), ("g", 14, 2)])

    def test_comments_and_strings_are_blanked_in_place(self):
        text = 'a /* { */ "}" \'"\' // }\nb'
        blank = tree.without_comments(text)
        self.assertEqual(len(blank), len(text))
        self.assertNotIn("{", blank)
        self.assertNotIn("}", blank)
        self.assertTrue(blank.endswith("\nb"))


class Testing(unittest.TestCase):
    def test_what_is_not_there_is_found(self):
        page = ("`not.a_test`: no row of a table\n"
                "| it goes wrong_in_many_ways | `dist.one`: one_two_three |\n"
                "| it | `dist.two`: one_two_three, one_two_four |\n")
        self.assertEqual(
            check_testing.check(page, "dyt_test(dist.one a.c)",
                                "one_two_three(void)"),
            [(3, "dist.two"), (3, "one_two_four")])
        self.assertTrue(check_testing.known(
            "e2e.run", "foreach(name run)\ndyt_test(e2e.${name} x.c)"))


class Pages(unittest.TestCase):
    def test_what_leads_nowhere_is_found(self):
        pages = {"docs/a.md": "# Two words, `x`\n[b](b.md) [c](c.md#here)\n"
                              "[d](a.md#two-words-x) [e](#not-it) [f](../lib)\n"
                              "[g](https://a.b/c)\n```\n[h](h.md)\n```\n",
                 "docs/c.md": "## There\n"}
        files = set(pages) | {"lib/x.c"}
        self.assertEqual(
            list(check_pages.dead_links("docs/a.md", pages["docs/a.md"], files,
                                        pages)),
            ["b.md", "c.md#here", "#not-it"])
        self.assertEqual(
            list(check_pages.lost_files("`lib/x.c` `x.c` `*x.c` `y.c` `y.d`",
                                        files)), ["y.c"])
        self.assertEqual(check_pages.not_listed("a b", ["a", "c"]), ["c"])


if __name__ == "__main__":
    unittest.main()
