// The page of one activity: which one, the address says.

import { Api } from "./api.js";
import { Clock } from "./clock.js";
import { Sale } from "./sale.js";
import { currentSession, deviceID, onSession } from "./session.js";
import { Tabs } from "./tabs.js";
import { View } from "./view.js";

const activityID = /^\/a\/([1-9][0-9]{0,18})$/.exec(location.pathname)?.[1] ?? '0';
const development = document.querySelector('meta[name="sluice-sign-in"]').content === 'development';

let scheduled = false; // a change waits to be shown

const clock = new Clock();
const api = new Api(() => ({ token: currentSession(clock.certain)?.token ?? '', device: deviceID() }), clock);

const view = new View({
  clock,
  development,
  leads: () => tabs.leads,
  act: async (action, ...args) => {
    await tabs.takeOver(); // the tab that is touched leads
    sale[action](...args);
  },
});

const sale = new Sale({ activityID, api, clock, development, changed: () => shown() });

const tabs = new Tabs(`sluice.${activityID}`, {
  lead: (signal) => sale.lead(signal),
  snapshot: () => ({ facts: sale.facts, now: clock.known ? new Date(clock.now()).toISOString() : '' }),
  mirror: ({ facts, now }) => {
    clock.heard(now);
    sale.adopt(facts);
    view.show(facts);
  },
});

// shown shows what is known, once for all changes of one step.
function shown() {
  if (scheduled) return;
  scheduled = true;
  queueMicrotask(() => {
    scheduled = false;
    view.show(sale.facts);
    tabs.publish();
  });
}

view.start();
view.show(sale.facts);
tabs.start();
onSession(() => { if (tabs.leads) sale.sessionChanged(); });
addEventListener('online', () => { if (tabs.leads) sale.hurry(); });
addEventListener('offline', () => { if (tabs.leads) sale.offline(); });
document.addEventListener('visibilitychange', () => { if (!document.hidden && tabs.leads) sale.hurry(); });
