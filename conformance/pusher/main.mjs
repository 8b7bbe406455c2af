// Runs the checks that need nothing but Node, and with LIBRARIES=1 those of pusher-js, Laravel Echo and `pusher` (npm).
//
// URL and APPS (JSON: applications by role, `main` at least) name the server; WEBHOOK_PORT is where its webhooks come.

import { Receiver } from './lib/webhooks.mjs';
import { run } from './lib/suite.mjs';

// A wait that is not needed any more may still fail, and a library may throw from its socket. Then the check that waits for it fails.
for (const event of ['unhandledRejection', 'uncaughtException']) {
    process.on(event, (error) => process.stderr.write(`late: ${error?.stack?.split('\n').slice(0, 2).join(' ')}\n`));
}

let webhooks;
if (process.env.WEBHOOK_PORT) {
    webhooks = new Receiver();
    await webhooks.listen(Number(process.env.WEBHOOK_PORT));
}
if (process.env.LIBRARIES) {
    await import('./checks/libraries.mjs');
} else {
    for (const name of ['connection', 'frames', 'malformed', 'channels', 'presence', 'client_events', 'users', 'http', 'webhooks', 'crowds']) {
        await import(`./checks/${name}.mjs`);
    }
}
await run({ url: process.env.URL, apps: JSON.parse(process.env.APPS), webhooks }, process.env.ONLY);
process.exit(0);
