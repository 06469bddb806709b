// Every word of the page, in both languages. A test demands the same keys in both.
// {name} is filled in. Numbers and times are written by Intl.

const en = {
  loading: 'One moment…',
  loadingText: 'Asking what is on sale.',
  missing: 'There is no such sale',
  missingText: 'Please check the address. The sale may also not have been announced yet.',

  opensIn: 'Opens in',
  opensAt: 'at {time}',
  opensOn: 'on {time}',
  countdownDays: '{days} d {clock}',
  inAMinute: 'The sale opens in one minute.',
  inTenSeconds: 'The sale opens in ten seconds.',
  limit: 'At most {n} per person',
  oneEach: 'One per person',
  choose: 'Which one?',
  quantity: 'How many?',

  signIn: 'Sign in to take part',
  signInText: 'Everybody has one place, whatever the number of tabs and devices.',
  signInSite: 'Please sign in on the shop’s own site, then come back to this page. It will know you.',
  userID: 'User id',
  userIDHint: 'Development only: any number of 1 to 19 digits.',
  signInButton: 'Sign in',
  signInBusy: 'Signing in…',
  signedInAs: 'Signed in as {user}',
  signOut: 'Sign out',
  badUser: 'That is not a user id. It is a number that does not begin with 0.',
  noSignIn: 'Signing in is not offered here.',
  signInAgain: 'Your session has ended. Sign in again: your place is kept.',

  join: 'Join the line',
  joinRandom: 'Everybody who joins before {time} takes part in a draw for the places. Coming early gives no advantage.',
  joinLate: 'The draw is over. Who joins now stands behind those who were drawn, in order of joining.',
  joinFifo: 'Places follow the order of joining.',
  joinOther: 'How places are given is written below.',
  joinButton: 'Join',
  joinBusy: 'Joining…',
  challenge: 'Showing that you are no robot. This takes a few seconds.',
  refused: 'That did not work. Please try again.',

  joined: 'You are in',
  joinedRandom: 'The places are drawn at {time}. Refreshing or waiting here changes nothing: your place is kept.',
  joinedOther: 'Your place is kept. You may close this page and come back for the opening.',
  drawn: 'The places are drawn',
  drawnText: 'You will see yours when the sale opens, together with everything needed to check it.',
  opening: 'The sale is open',
  openingText: 'Looking up your place.',

  waiting: 'About {n} people are ahead of you',
  waitingOne: 'One person is ahead of you',
  waitBetween: 'Probably {range}.',
  waitFromTo: '{low} to {high}',
  waitBelow: 'Probably less than {high}.',
  waitingText: 'An estimate: it depends on how many of those ahead go through with it. You may close this page; your place is kept.',
  next: 'You are next',
  nextText: 'Just a moment: your turn is about to come.',
  unlikely: 'The stock will probably not reach you',
  unlikelyText: 'About {n} people are ahead of you, more than the stock is expected to reach. We would rather say so now than let you hope. If many of them do not buy, your turn may still come, and this page will tell you.',
  lineLabel: 'The line: who had their turn, and you',
  paused: 'The sale is paused',
  pausedText: 'Nobody is let in at the moment. Your place is kept and this page goes on by itself.',

  turn: 'It is your turn',
  turnText: 'A turn is the right to try, not a unit: the sale ends when the stock is gone. Your turn stays yours until then.',
  buyButton: 'Buy now',
  sending: 'Trying to reserve…',
  sendingText: 'Please leave this page open. Nothing is ordered twice, whatever happens to the connection.',
  sendingAgain: 'The service is very busy. Attempt {n} of {all}.',
  sendingCut: 'The connection was cut. Attempt {n} of {all}; it can never buy twice.',
  asking: 'The answer was lost. Asking what came of it.',
  tooFast: 'That was faster than the service allows. It is tried again shortly.',
  busy: 'The service is very busy. It is tried again shortly.',
  stillBusy: 'The service is still too busy. Your turn is kept: please try again.',
  backInLine: 'The service is too busy for new orders. You are back in line at the same place.',
  skuGone: 'That one is sold out. Another is selected; your turn is still yours.',
  goneTag: 'Sold out',
  ticketInvalid: 'Your turn could not be confirmed. You are back in line.',

  reserved: 'Reserved for you',
  reservedText: 'Your order is being created. This usually takes a few seconds.',
  order: 'Your order is created',
  orderAlready: 'You already have an order',
  orderText: 'Pay before {time} to keep it. After that it is cancelled and goes to somebody else.',
  orderWait: 'Looking up your order.',
  payIn: 'Left to pay',
  payOver: 'The time to pay is over.',
  orderNumber: 'Order number',
  orderItem: 'Item',
  orderQuantity: 'Quantity',
  orderCreated: 'Created',
  cancelButton: 'Cancel this order',
  cancelSure: 'Cancel this order? The unit goes to somebody else.',
  cancelYes: 'Yes, cancel it',
  cancelBusy: 'Cancelling…',
  cancelNo: 'Keep it',
  notCancelled: 'The order could not be cancelled any more.',
  paid: 'Paid. It is yours.',
  paidText: 'There is nothing more to do here.',
  cancelled: 'The order is cancelled',
  cancelledText: 'The unit went back to the sale.',
  anotherButton: 'Ask for another turn',
  notAnother: 'There is no other turn for you yet. Please try again in a moment.',
  oneAttempt: 'One attempt per person: this sale gives no second turn.',
  attemptsUsed: 'All your attempts at this sale are used up.',
  noCapacity: 'No unit was left',
  noCapacityText: 'Somebody was quicker by a moment. You will not be charged.',
  duplicate: 'You already have an order',
  duplicateText: 'Only one order per person is possible.',

  soldOut: 'Sold out',
  soldOutText: 'Every unit is sold. This page has stopped asking.',
  soldOutWatch: 'Every unit is taken. Some may come back when orders are not paid, and this page goes on looking.',
  soldOutMine: 'The stock was gone before you could get one. We are sorry. This page has stopped asking.',
  soldOutMineWatch: 'The stock was gone before you could get one. Some units may come back when orders are not paid: your place is kept, and this page goes on looking.',
  soldOutSignIn: 'Bought on another device? Sign in to see your order.',
  reopened: 'Some units have come back. The sale goes on.',
  againButton: 'Look again',
  lookButton: 'Look for my order',
  ended: 'The sale is over',
  endedText: 'Thank you for coming.',

  connected: 'Connected',
  lost: 'Connection lost. Your place is kept; trying again.',
  lostOrder: 'Connection lost. Your order stands; trying again.',
  lostPlain: 'Connection lost; trying again.',
  notConnected: 'Not connected',
  restored: 'Connected again.',
  resting: 'No further updates',
  serverTime: 'Server time {time}',
  otherTab: 'Shown from another tab',

  howPlaces: 'How the places are given',
  modeRandom: 'By a draw among everybody who joins before {time}. Who joins later follows in order of joining.',
  modeFifo: 'In order of joining.',
  modeWeighted: 'By a draw in which groups have weights: {weights}.',
  modeQuota: 'Each group has its share: {weights}.',
  modeLottery: 'By one draw among everybody who joins before {time}. The first win; the others stand in reserve in the order drawn.',
  counts: '{joined} people have joined.',
  countsOne: '1 person has joined.',
  drawSealed: 'The draw is sealed: this commitment was published before anybody joined.',
  drawTrust: 'No public value is configured: that the secret was chosen fairly rests on the operator.',
  drawVerified: 'Draw verified on this device: the secret is the one committed to, and it gives your rank.',
  drawVerifiedLate: 'Draw verified on this device: the secret is the one committed to. You joined after the draw and follow in order of joining.',
  drawMismatch: 'The draw could not be verified: the figures do not agree. Please keep the details below and tell the operator.',
  drawInsecure: 'This browser can verify the draw only on a secure (https) address.',
  drawRevealed: 'The draw is revealed. Join, and this page checks your rank.',
  commitment: 'Commitment',
  secret: 'Secret',
  joinRoot: 'Root of the join log',
  publicValue: 'Public value',
  drawnCount: 'People in the draw',
  yourRank: 'Your rank',
  rankOf: '{rank} of 2^52',
};

const zh = {
  loading: '请稍候…',
  loadingText: '正在查询活动信息。',
  missing: '没有这个活动',
  missingText: '请检查网址，活动也可能尚未公布。',

  opensIn: '距开始还有',
  opensAt: '{time} 开始',
  opensOn: '{time} 开始',
  countdownDays: '{days} 天 {clock}',
  inAMinute: '活动将在一分钟后开始。',
  inTenSeconds: '活动将在十秒后开始。',
  limit: '每人最多 {n} 件',
  oneEach: '每人限购一件',
  choose: '选择商品',
  quantity: '购买数量',

  signIn: '请先登录',
  signInText: '无论打开多少页面、使用多少设备，每人只有一个排队位置。',
  signInSite: '请先在商城登录，再回到本页，系统会识别您的身份。',
  userID: '用户编号',
  userIDHint: '仅供开发使用：任意 1 到 19 位数字。',
  signInButton: '登录',
  signInBusy: '正在登录…',
  signedInAs: '已登录：{user}',
  signOut: '退出登录',
  badUser: '用户编号不正确，应为不以 0 开头的数字。',
  noSignIn: '此处不提供登录。',
  signInAgain: '登录已失效，请重新登录，您的位置仍然保留。',

  join: '加入排队',
  joinRandom: '在 {time} 之前加入的人都会参加名次抽签，早来并无优势。',
  joinLate: '抽签已结束，现在加入将按先后顺序排在已抽签的人之后。',
  joinFifo: '名次按加入的先后顺序排列。',
  joinOther: '名次的产生方式见下方说明。',
  joinButton: '加入',
  joinBusy: '正在加入…',
  challenge: '正在进行人机验证，需要几秒钟。',
  refused: '操作未成功，请重试。',

  joined: '您已加入',
  joinedRandom: '名次将在 {time} 抽签产生。刷新或守候都不会改变结果，您的位置已保留。',
  joinedOther: '您的位置已保留，可以关闭页面，开始时再回来。',
  drawn: '名次已抽出',
  drawnText: '活动开始时将公布您的名次以及验证所需的全部数据。',
  opening: '活动已开始',
  openingText: '正在查询您的名次。',

  waiting: '您前面约有 {n} 人',
  waitingOne: '您前面还有 1 人',
  waitBetween: '预计等待 {range}。',
  waitFromTo: '{low}至{high}',
  waitBelow: '预计等待不超过 {high}。',
  waitingText: '这只是估计，取决于前面有多少人实际购买。您可以关闭页面，位置会保留。',
  next: '马上轮到您',
  nextText: '请稍候，即将轮到您。',
  unlikely: '库存很可能轮不到您',
  unlikelyText: '您前面约有 {n} 人，超出库存预计能满足的人数。我们希望如实相告，不让您空等。如果前面许多人放弃，仍可能轮到您，届时本页会提示。',
  lineLabel: '队伍进度：已轮到的人与您的位置',
  paused: '活动暂停',
  pausedText: '目前暂不放行。您的位置已保留，恢复后本页会自动继续。',

  turn: '轮到您了',
  turnText: '轮到您意味着可以尝试购买，并不代表已有库存，售完即止。在此之前资格一直有效。',
  buyButton: '立即购买',
  sending: '正在为您预留…',
  sendingText: '请不要关闭页面。无论网络如何，都不会重复下单。',
  sendingAgain: '系统繁忙，第 {n} 次尝试，共 {all} 次。',
  sendingCut: '连接中断，第 {n} 次尝试，共 {all} 次，不会重复下单。',
  asking: '未收到答复，正在查询结果。',
  tooFast: '操作过于频繁，稍后自动重试。',
  busy: '系统繁忙，稍后自动重试。',
  stillBusy: '系统仍然繁忙，您的资格已保留，请再试一次。',
  backInLine: '系统暂时无法接收新订单，您已回到队伍中的原位置。',
  skuGone: '所选商品已售罄，已为您选中另一款，资格仍然有效。',
  goneTag: '已售罄',
  ticketInvalid: '未能确认您的资格，您已回到队伍中。',

  reserved: '已为您保留',
  reservedText: '订单正在创建，通常只需几秒。',
  order: '订单已创建',
  orderAlready: '您已有订单',
  orderText: '请在 {time} 前付款，逾期订单将取消并让给他人。',
  orderWait: '正在查询您的订单。',
  payIn: '剩余付款时间',
  payOver: '付款时间已过。',
  orderNumber: '订单编号',
  orderItem: '商品',
  orderQuantity: '数量',
  orderCreated: '创建时间',
  cancelButton: '取消订单',
  cancelSure: '确定取消订单吗？该商品将让给他人。',
  cancelYes: '确定取消',
  cancelBusy: '正在取消…',
  cancelNo: '保留订单',
  notCancelled: '订单已无法取消。',
  paid: '付款成功，商品归您了。',
  paidText: '无需其他操作。',
  cancelled: '订单已取消',
  cancelledText: '商品已退回活动库存。',
  anotherButton: '再次申请购买',
  notAnother: '暂时没有新的资格，请稍后再试。',
  oneAttempt: '每人只有一次机会，本次活动不能再次购买。',
  attemptsUsed: '您在本次活动中的机会已用完。',
  noCapacity: '库存不足',
  noCapacityText: '有人快了一步，您不会被扣款。',
  duplicate: '您已有订单',
  duplicateText: '每人只能下一单。',

  soldOut: '已售罄',
  soldOutText: '全部商品已售出，本页已停止查询。',
  soldOutWatch: '全部商品已被抢订。若有订单未付款，可能会重新开放，本页会继续关注。',
  soldOutMine: '很抱歉，您未能赶上，库存已售完，本页已停止查询。',
  soldOutMineWatch: '您未能赶上，库存已被抢订。若有订单未付款，可能会重新开放：您的位置已保留，本页会继续关注。',
  soldOutSignIn: '在其他设备上买到了？登录即可查看您的订单。',
  reopened: '有商品退回，活动继续。',
  againButton: '再看一次',
  lookButton: '查找我的订单',
  ended: '活动已结束',
  endedText: '感谢您的参与。',

  connected: '已连接',
  lost: '连接中断，您的位置已保留，正在重试。',
  lostOrder: '连接中断，您的订单仍然有效，正在重试。',
  lostPlain: '连接中断，正在重试。',
  notConnected: '未连接',
  restored: '已恢复连接。',
  resting: '不再更新',
  serverTime: '服务器时间 {time}',
  otherTab: '由另一页面更新',

  howPlaces: '名次如何产生',
  modeRandom: '在 {time} 之前加入的人抽签决定名次，之后加入的人按先后顺序排在其后。',
  modeFifo: '按加入的先后顺序。',
  modeWeighted: '按加权抽签，各组权重：{weights}。',
  modeQuota: '各组按份额放行：{weights}。',
  modeLottery: '在 {time} 之前加入的人一次抽签，靠前者中签，其余按抽签顺序候补。',
  counts: '已有 {joined} 人加入。',
  countsOne: '已有 1 人加入。',
  drawSealed: '抽签已封存：以下承诺值在任何人加入之前就已公布。',
  drawTrust: '未配置公开随机值：秘密值是否公平选取取决于主办方。',
  drawVerified: '已在本机验证抽签：秘密值与承诺一致，并由此得出您的名次。',
  drawVerifiedLate: '已在本机验证抽签：秘密值与承诺一致。您在抽签后加入，按先后顺序排列。',
  drawMismatch: '抽签验证未通过：数据不一致。请保留以下信息并告知主办方。',
  drawInsecure: '仅在安全连接（https）下才能验证抽签。',
  drawRevealed: '抽签数据已公布。加入后本页会验证您的名次。',
  commitment: '承诺值',
  secret: '秘密值',
  joinRoot: '加入记录的根',
  publicValue: '公开随机值',
  drawnCount: '参加抽签人数',
  yourRank: '您的名次',
  rankOf: '{rank} / 2^52',
};

const words = { en, zh };

// Words speaks one language.
export class Words {
  constructor(language) { this.language = language; }

  // say answers the text of a key with its {names} filled in.
  say(key, fill = {}) {
    return (words[this.language][key] ?? key).replace(/\{(\w+)\}/g, (whole, name) => fill[name] ?? whole);
  }

  number(n) { return new Intl.NumberFormat(this.language).format(n); }

  // about rounds to two digits that mean something: an estimate has no more.
  about(n) {
    return new Intl.NumberFormat(this.language, n < 20 ? {} : { maximumSignificantDigits: 2 }).format(n);
  }

  money({ amount, currency }) {
    const decimals = amount.split('.')[1]?.length ?? 0;
    const format = { style: 'currency', currency, minimumFractionDigits: decimals, maximumFractionDigits: decimals };
    try {
      return new Intl.NumberFormat(this.language, format).format(amount);
    } catch {
      return `${amount} ${currency}`;
    }
  }

  // time is a time of day, with the date when that is not today; seconds only when they matter.
  time(ms, now) {
    const at = new Date(ms);
    const format = { hour: 'numeric', minute: '2-digit' };
    if (at.getSeconds() !== 0) format.second = '2-digit';
    if (!this.isToday(ms, now)) Object.assign(format, { month: 'short', day: 'numeric' });
    return new Intl.DateTimeFormat(this.language, format).format(at);
  }

  isToday(ms, now) { return new Date(ms).toDateString() === new Date(now).toDateString(); }

  clock(ms) {
    return new Intl.DateTimeFormat(this.language, { timeStyle: 'medium' }).format(new Date(ms));
  }

  // duration is a wait as people say it: rounded up to a unit that is not false precision.
  duration(ms) {
    const { n, unit } = rounded(ms);
    return this.#units(unit).format(n);
  }

  // range is a wait between two durations; '' when they are the same to people.
  range(low, high) {
    const [from, to] = [rounded(low), rounded(high)];
    if (from.unit !== to.unit) return this.say('waitFromTo', { low: this.duration(low), high: this.duration(high) });
    return from.n === to.n ? '' : this.#units(from.unit).formatRange(from.n, to.n);
  }

  #units(unit) {
    return new Intl.NumberFormat(this.language, { style: 'unit', unit, unitDisplay: this.language === 'zh' ? 'short' : 'long' });
  }
}

function rounded(ms) {
  const seconds = Math.max(5, Math.ceil(ms / 5000) * 5);
  if (seconds < 60) return { n: seconds, unit: 'second' };
  const minutes = Math.ceil(seconds / 60);
  return minutes < 90 ? { n: minutes, unit: 'minute' } : { n: Math.ceil(minutes / 60), unit: 'hour' };
}

// preferredLanguage is the first of the browser's languages that the page speaks.
export function preferredLanguage(languages) {
  for (const l of languages) {
    const tongue = l.toLowerCase().split('-')[0];
    if (tongue in words) return tongue;
  }
  return 'en';
}
