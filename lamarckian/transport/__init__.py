"""How processes reach each other: nameless shared memory, versions of parameters, typed messages, and versions for many machines."""
