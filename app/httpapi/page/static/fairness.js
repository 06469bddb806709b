// How places are given, and the draw laid open for anybody to check.

import { el } from "./dom.js";

// fairnessKey changes when what fairness shows does.
export function fairnessKey({ facts, words }) {
  return [words.language, JSON.stringify(facts.queue.draw), JSON.stringify(facts.check), facts.queue.joined,
    facts.place === null, facts.activity.activity_version].join('|');
}

export function fairness(v) {
  const { facts, words } = v;
  const { queue, check } = facts;
  const draw = queue.draw ?? {};
  return [
    check && facts.place && el(`p.check.check-${check.state}`, {}, checkText(v)),
    el('details', {},
      el('summary', {}, words.say('howPlaces')),
      el('p', {}, modeText(v)),
      el('p', {}, queue.joined === 1 ? words.say('countsOne') : words.say('counts', { joined: words.number(queue.joined ?? 0) })),
      draw.commitment && !draw.secret && el('p', {}, words.say('drawSealed')),
      draw.secret && !facts.place && el('p', {}, words.say('drawRevealed')),
      draw.trust === 'operator' && el('p', {}, words.say('drawTrust')),
      figures(v, draw)),
  ].filter(Boolean);
}

function checkText({ facts: { check }, words }) {
  switch (check.state) {
    case 'verified': return words.say(check.late ? 'drawVerifiedLate' : 'drawVerified');
    case 'insecure': return words.say('drawInsecure');
    default: return words.say('drawMismatch');
  }
}

function modeText(v) {
  const { facts, words } = v;
  const { mode, weights = {}, draw_closes_at: closes } = facts.activity.fairness;
  const time = closes ? words.time(Date.parse(closes), v.now()) : '';
  const list = Object.entries(weights).map(([lane, weight]) => `${lane} ${words.number(weight)}`).join(', ');
  switch (mode) {
    case 'fifo': return words.say('modeFifo');
    case 'weighted': return words.say('modeWeighted', { weights: list });
    case 'quota': return words.say('modeQuota', { weights: list });
    case 'lottery': return words.say('modeLottery', { time });
    default: return words.say('modeRandom', { time });
  }
}

function figures({ facts, words }, draw) {
  const rows = [];
  const row = (key, value) => { if (value) rows.push(el('dt', {}, words.say(key)), el('dd', {}, value)); };
  row('commitment', draw.commitment);
  row('secret', draw.secret);
  row('joinRoot', draw.join_root);
  row('publicValue', draw.public_value);
  row('drawnCount', draw.join_root && words.number(draw.drawn));
  const rank = facts.check?.rank;
  row('yourRank', rank !== undefined && facts.place && words.say('rankOf', { rank: words.number(rank) }));
  return rows.length > 0 && el('dl.figures', {}, rows);
}
