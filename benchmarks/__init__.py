"""Speed and size of the kit, measured beside its peers and beside what nobody can get below.

    make bench                       # everything, into docs/performance.md; sets itself up
    make bench ARGS=--quick          # only shows that it runs, in a minute or so
    python -m benchmarks --list      # which jobs and contestants there are

A job (:mod:`benchmarks.jobs`) has cases, a table each. The entries of a case are programs: the
contestants (:mod:`benchmarks.contestants`), Go programs (``benchmarks/peers``), or functions of the
job's own module. Each runs in a fresh process, in turns with the others, several rounds; what is
told is the median, the spread, and the ratio to the floor and to ours in the same run. The absolute
numbers belong to the machine.

What goes over the network comes from a replay server (:mod:`benchmarks._replay`), a process of its
own that is many times faster than those who are measured.
"""
