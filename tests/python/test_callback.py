# SPDX-License-Identifier: Apache-2.0
"""harpe.callback: events reach every callback, in order, with their arguments."""
import inspect
import unittest

import world  # noqa: F401
from harpe.callback import Callback, CallbackSet

EVENTS = {"on_train_begin": (), "on_train_end": (), "on_epoch_begin": (), "on_epoch_end": (),
          "on_step_begin": (), "on_step_end": (), "on_evaluate": (0.5,),
          "on_instruction_begin": ("forward",), "on_instruction_end": ("forward",)}


def recorder(name, heard):
    """A callback that records each event under `name`."""
    methods = {event: (lambda self, *carried, event=event: heard.append((name, event, *carried)))
               for event in EVENTS}
    return type(name, (Callback,), methods)()


class Callbacks(unittest.TestCase):
    def test_these_are_all_events(self):
        for kind in (Callback, CallbackSet):
            self.assertEqual({name for name, _ in inspect.getmembers(kind, inspect.isfunction)
                              if name.startswith("on_")}, set(EVENTS))

    def test_a_callback_ignores_what_it_does_not_override(self):
        for event, carried in EVENTS.items():
            self.assertIsNone(getattr(Callback(), event)(*carried))

    def test_a_set_calls_all_in_their_order(self):
        heard = []
        callbacks = CallbackSet([recorder("first", heard), Callback(), recorder("second", heard)])
        for event, carried in EVENTS.items():
            getattr(callbacks, event)(*carried)
        self.assertEqual(heard, [(name, event, *carried) for event, carried in EVENTS.items()
                                 for name in ("first", "second")])

    def test_a_set_can_be_in_a_set_and_change(self):
        heard = []
        callbacks = CallbackSet(iter([CallbackSet([recorder("inner", heard)])]))
        callbacks.callbacks.append(recorder("late", heard))
        callbacks.on_step_end()
        self.assertEqual(heard, [("inner", "on_step_end"), ("late", "on_step_end")])

    def test_an_exception_reaches_the_loop(self):
        class Failing(Callback):
            def on_epoch_end(self):
                raise OSError("disk full")

        with self.assertRaisesRegex(OSError, "disk full"):
            CallbackSet([Callback(), Failing()]).on_epoch_end()
