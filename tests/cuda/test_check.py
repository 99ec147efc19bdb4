"""The check itself: what ptxas says is understood, and a spill is found."""

import unittest

import check_kernels

TEXT = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN3_a10copy_boxesEPKv' for 'sm_90'
ptxas info    : Function properties for _ZN3_a10copy_boxesEPKv
    40 bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used 72 registers, used 0 barriers, 16896 bytes smem
ptxas info    : Compiling entry function '_Z10hash_boxesPKv' for 'sm_120'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, used 0 barriers
"""
NAMES = ["copy_boxes", "hash_boxes", "boxes"]


class Parse(unittest.TestCase):
    def test_figures(self):
        found, spills = check_kernels.parse(TEXT.format(stores=0, loads=0),
                                            NAMES)
        self.assertEqual(found, {
            "copy_boxes": {"90": {"registers": 72, "stack": 40,
                                  "shared": 16896}},
            "hash_boxes": {"120": {"registers": 30, "stack": 0, "shared": 0}}})
        self.assertEqual(spills, [])

    def test_a_spill_is_found(self):
        for stores, loads in ((8, 0), (0, 4)):
            _, spills = check_kernels.parse(
                TEXT.format(stores=stores, loads=loads), NAMES)
            self.assertEqual(len(spills), 1)
            self.assertIn("copy_boxes for sm_90", spills[0])

    def test_names_of_kernels(self):
        self.assertEqual(check_kernels.KERNEL.findall(
            "__global__ void __launch_bounds__(BLOCK)\n    copy_boxes(int a)"
            "\n{\n}\n__global__ static void other(int b)"),
            ["copy_boxes", "other"])

    def test_differences_are_named(self):
        a = {"k": {"90": {"registers": 1}}}
        b = {"k": {"90": {"registers": 2}}}
        self.assertEqual(list(check_kernels.compare(a, a)), [])
        self.assertEqual(len(list(check_kernels.compare(a, b))), 1)
        self.assertEqual(len(list(check_kernels.compare({}, b))), 1)
        # A kernel that is gone is found by those that are left.
        both = a | {"other": {"90": {"registers": 3}}}
        self.assertEqual(len(list(check_kernels.compare(both, a))), 1)

    def test_a_build_for_fewer_architectures_is_compared(self):
        table = {"k": {"80": {"registers": 1}, "90": {"registers": 2}}}
        for want, registers in ((0, 2), (1, 3)):
            got = {"k": {"90": {"registers": registers}}}
            self.assertEqual(len(list(check_kernels.compare(table, got))),
                             want)

    def test_a_file_that_nobody_builds_is_found(self):
        findings, got = check_kernels.read_logs([])
        self.assertEqual(got, {})
        self.assertTrue(any("copy.cu is built by nobody" in f
                            for f in findings))


if __name__ == "__main__":
    unittest.main()
