"""Many callers act on the same jobs at once. In any order, no call fails, and no job is lost or doubled."""

from __future__ import annotations

import random
from uuid import UUID

from .bench import Bench, new_job
from .counts import check_counts


class Crowding:
    def test_batches_over_the_same_jobs_in_any_order_hurt_nobody(self, bench: Bench) -> None:
        jobs = bench.add_many(60)
        held = {one.id: one for one in bench.claim(30)}

        def act(number: int) -> None:
            chance = random.Random(number)
            for _ in range(6):
                chosen = [job.id for job in chance.sample(jobs, 40)]
                mine = [held[id] for id in chosen if id in held]
                match chance.randrange(6):
                    case 0:
                        bench.run_now(*chosen)
                    case 1:
                        bench.cancel(*chosen[:3])
                    case 2:
                        bench.retry(*chosen)
                    case 3:
                        bench.renew(*(one.lease() for one in mine))
                    case 4:
                        bench.settle(*(one.completes() for one in mine[:10]))
                    case 5:
                        bench.settle(*(one.gives_back() for one in mine[:10]))

        bench.at_once(6, act)
        assert bench.find() == jobs[::-1]
        check_counts(bench)

    def test_from_enqueue_to_the_end_each_job_is_done_once(self, bench: Bench) -> None:
        def work(number: int) -> list[UUID]:
            if number < 2:
                for _ in range(5):
                    bench.enqueue(*(new_job() for _ in range(20)))
                return []
            done = []
            for _ in range(30):
                claimed = bench.claim(9)
                bench.accept(*(one.completes() for one in claimed))
                done += [one.id for one in claimed]
            return done

        done = [id for some in bench.at_once(6, work) for id in some]
        while rest := bench.claim(100):
            bench.accept(*(one.completes() for one in rest))
            done += [one.id for one in rest]
        assert sorted(done) == sorted(job.id for job in bench.find())
        assert len(done) == len(set(done)) == bench.counts().completed == bench.counts().total == 200
