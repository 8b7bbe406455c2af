// Runs checks and prints the result of each, one JSON object a line: {"check", "ok", "why"} or {"check",
// "skipped"}.

import assert from 'node:assert/strict';

const checks = [];
let group = '';

/** Names what follows. */
export function about(name, define) {
    const outer = group;
    group = outer ? `${outer}: ${name}` : name;
    define();
    group = outer;
}

/** `needs`: features that the run must have, e.g. 'webhooks' or the application 'limited'; `alone`: no other check
 * runs at the same time. */
export function check(name, options, run) {
    const [{ needs = [], alone = false }, body] = run === undefined ? [{}, options] : [options, run];
    checks.push({ name: `${group}: ${name}`, needs: [needs].flat(), alone, body });
}

let number = 0;
/** Distinguishes the channels of a run from each other and from those of the run before. */
export const fresh = (start = 'channel') => `${start}-${process.pid}-${(number += 1)}-${Math.random().toString(36).slice(2, 8)}`;

/** A target with the features of this run: `url`, `apps` by role, `webhooks`. */
export async function run(world, only) {
    const chosen = checks.filter(({ name }) => !only || name.includes(only));
    const say = (result) => process.stdout.write(`${JSON.stringify(result)}\n`);
    const one = async ({ name, needs, body }) => {
        const missing = needs.filter((need) => (need === 'webhooks' ? !world.webhooks : !world.apps[need]));
        if (missing.length) {
            return say({ check: name, skipped: `no ${missing.join(', ')}` });
        }
        const opened = [];
        const target = {
            url: world.url,
            app: world.apps.main,
            webhooks: world.webhooks,
            as: (role) => ({ ...target, app: world.apps[role] }),
            later: (undo) => opened.push(undo),
        };
        try {
            await body(target);
            say({ check: name, ok: true });
        } catch (error) {
            const where = error.stack?.split('\n').find((line) => line.includes('/checks/'))?.match(/checks\/[^)]*/)?.[0] ?? '';
            say({ check: name, ok: false, why: `${error.message} ${where}`.replace(/\s+/g, ' ').slice(0, 600) });
        } finally {
            await Promise.allSettled(opened.reverse().map((undo) => undo()));
        }
    };
    const together = chosen.filter(({ alone }) => !alone);
    const width = Number(process.env.TOGETHER ?? 6);
    await Promise.all(Array.from({ length: width }, async () => {
        for (let next = together.shift(); next; next = together.shift()) {
            await one(next);
        }
    }));
    for (const next of chosen.filter(({ alone }) => alone)) {
        await one(next);
    }
}

export { assert };
