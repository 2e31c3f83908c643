// A real OpenID provider on loopback, as its maker publishes it (npm `oidc-provider`), with pages of its own to sign in and to agree.
//
// Started by provider.py with one line of JSON on standard input; then each line there is a command, and each line on standard
// output its answer. State is in memory. What the library says goes to standard error. This file holds no policy of ours: it is the
// other side.

import { readFileSync } from 'node:fs';
import https from 'node:https';
import path from 'node:path';
import readline from 'node:readline';
import { pathToFileURL } from 'node:url';

for (const name of ['log', 'info', 'warn', 'debug']) console[name] = console.error;
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
const escaped = (text) => String(text).replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const told = JSON.parse((await lines.next()).value);
const { default: Provider, errors } = await import(pathToFileURL(path.join(told.modules, 'oidc-provider', 'lib', 'index.js')));

const state = { accessTtl: told.access_ttl_s, faults: [], held: [] };
const issued = []; // what went out in an answer of the token or registration endpoint, and codes: {kind, value, account}
const seen = []; // what was asked: {method, path, status, grant}

const page = (title, body) => `<!doctype html><html lang="en"><meta charset="utf-8"><title>${title}</title>
<link rel="icon" href="data:,"><body style="font-family: sans-serif"><main><h1>${title}</h1>${body}</main></body></html>`;

const loginPage = (action) => page('Sign in', `<form method="post" action="${action}"><input name="login" aria-label="account"
autocomplete="off"><input type="password" name="password" aria-label="password"><button name="answer" value="login">Sign in</button></form>`);

const consentPage = (action, client, scopes) => page('Allow access?', `<p id="client">${escaped(client)}</p>
<form method="post" action="${action}">${scopes.map((scope) => `<p><label><input type="checkbox" name="scope" checked
value="${escaped(scope)}">${escaped(scope)}</label></p>`).join('')}<button name="answer" value="allow">Allow</button>
<button name="answer" value="deny">Deny</button></form>`);

// Every service of this machine is one that tokens may be for. A renewal that does not name it gets a token for nothing.
function resourceServer(_ctx, resource) {
  if (!resource.startsWith('https://localhost:')) throw new errors.InvalidTarget();
  return { scope: told.scopes.join(' '), audience: resource, accessTokenFormat: 'opaque' };
}

function configuration() {
  return {
    clients: told.clients.map(({ id, secret, auth, introspects }) => ({
      client_id: id,
      ...(secret ? { client_secret: secret } : {}),
      token_endpoint_auth_method: secret ? auth : 'none',
      application_type: 'native',
      redirect_uris: introspects ? [] : ['http://localhost/callback'],
      response_types: introspects ? [] : ['code'],
      grant_types: introspects ? [] : ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'],
    })),
    scopes: ['openid', 'offline_access', ...told.scopes],
    claims: { openid: ['sub'], email: ['email', 'email_verified'] },
    conformIdTokenClaims: false,
    findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: `sub-${id}`, email: id, email_verified: true }) }),
    extraParams: ['access_type', 'include_granted_scopes'],
    pkce: { required: () => true },
    issueRefreshToken: async (_ctx, client) => client.grantTypeAllowed('refresh_token'),
    rotateRefreshToken: () => told.rotates,
    interactions: { url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
    cookies: { keys: ['for the cookies of a test'] },
    features: {
      devInteractions: { enabled: false },
      deviceFlow: { enabled: told.device },
      revocation: { enabled: told.revocation },
      introspection: { enabled: true, allowedPolicy: () => true },
      registration: { enabled: told.registration },
      ...(told.documents ? { clientIdMetadataDocument: { enabled: true, ack: told.documents } } : {}),
      ...(told.resources ? { resourceIndicators: { enabled: true, getResourceServerInfo: resourceServer } } : {}),
    },
    ttl: {
      AccessToken: () => state.accessTtl,
      AuthorizationCode: 60,
      DeviceCode: told.device_ttl_s,
      Grant: 14 * 24 * 3600,
      IdToken: 3600,
      Interaction: 3600,
      RefreshToken: 14 * 24 * 3600,
      Session: 14 * 24 * 3600,
    },
    routes: told.routes,
    // Without the dispatcher, which refuses this machine's own addresses: a client's document is on it.
    fetch: (url, { dispatcher: _, ...options }) => globalThis.fetch(url, options),
    renderError: (ctx, out) => {
      ctx.type = 'html';
      ctx.body = page('Refused', Object.entries(out).map(([key, value]) => `<p>${escaped(key)}: ${escaped(value)}</p>`).join(''));
    },
  };
}

async function body(req) {
  let text = '';
  for await (const chunk of req) {
    text += chunk;
    if (text.length > 65536) throw new Error('too much');
  }
  return new URLSearchParams(text);
}

async function interact(provider, req, res) {
  const details = await provider.interactionDetails(req, res);
  const { prompt, params, session } = details;
  if (req.method === 'GET') {
    res.setHeader('content-type', 'text/html; charset=utf-8');
    const ofResources = Object.values(prompt.details.missingResourceScopes ?? {}).flat();
    const missing = [...(prompt.details.missingOIDCScope ?? []), ...ofResources];
    const scopes = missing.length ? [...new Set(missing)] : params.scope.split(' ');
    res.end(prompt.name === 'login' ? loginPage(req.url) : consentPage(req.url, params.client_id, scopes));
    return;
  }
  const form = await body(req);
  const finish = (result) => provider.interactionFinished(req, res, result, { mergeWithLastSubmission: form.get('answer') === 'allow' });
  if (form.get('answer') === 'deny') return finish({ error: 'access_denied', error_description: 'the person said no' });
  if (form.get('answer') === 'login') return finish({ login: { accountId: form.get('login') } });
  const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(form.getAll('scope').join(' '));
  const refused = params.scope.split(' ').filter((scope) => !form.getAll('scope').includes(scope));
  if (refused.length) grant.rejectOIDCScope(refused.join(' '));
  for (const resource of Object.keys(prompt.details.missingResourceScopes ?? {})) {
    grant.addResourceScope(resource, form.getAll('scope').join(' '));
  }
  if (prompt.details.missingOIDCClaims) grant.addOIDCClaims(prompt.details.missingOIDCClaims);
  return finish({ consent: { grantId: await grant.save() } });
}

// A fault is of the token endpoint (or of `path`) and of as many answers as `times`: `status` instead of an answer; `drop`, after the
// provider has done its work; `hold` until `release`, likewise; `stall` before it, for good.
function fault(pathname) {
  const at = state.faults.findIndex((one) => one.path === pathname);
  if (at < 0) return undefined;
  const one = state.faults[at];
  if (--one.times <= 0) state.faults.splice(at, 1);
  return one;
}

async function remember(ctx, next) {
  await next();
  if (!['token', 'registration'].includes(ctx.oidc?.route) || !ctx.body) return;
  for (const kind of ['access_token', 'refresh_token', 'id_token', 'registration_access_token']) {
    if (ctx.body[kind]) issued.push({ kind, value: ctx.body[kind], account: ctx.oidc.account?.accountId ?? null });
  }
}

const credentials = { key: readFileSync(told.key), cert: readFileSync(told.certificate) };
let handle = null;
const sockets = new Set();

function listen(port) {
  const server = https.createServer(credentials, (req, res) => handle(req, res));
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
  });
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, told.address, () => resolve(server));
  });
}

let server = await listen(told.port);
const { port } = server.address();
const issuer = told.issuer ?? `https://localhost:${port}`;
const provider = new Provider(issuer, configuration());
provider.use(remember);
provider.on('authorization_code.saved', (code) => issued.push({ kind: 'code', value: code.jti, account: code.accountId ?? null }));
provider.on('server_error', (_ctx, error) => console.error(error));
const answer = provider.callback();
const tokenPath = told.routes.token ?? '/token';

handle = (req, res) => {
  const { pathname } = new URL(req.url, issuer);
  const wrong = fault(pathname);
  const note = () => seen.push({ method: req.method, path: pathname, status: wrong?.status ?? res.statusCode, user_agent: req.headers['user-agent'] ?? '' });
  if (wrong?.status) {
    res.statusCode = wrong.status;
    for (const [name, value] of Object.entries(wrong.headers ?? {})) res.setHeader(name, value);
    res.end(wrong.body ?? '');
    note();
    return;
  }
  if (wrong?.stall) {
    state.held.push(() => req.socket.destroy());
    return;
  }
  const end = res.end.bind(res);
  res.end = (...rest) => {
    note();
    if (wrong?.drop) return req.socket.destroy();
    if (!wrong?.hold) return end(...rest);
    state.held.push(() => end(...rest));
    return res;
  };
  if (!pathname.startsWith('/interaction/')) return answer(req, res);
  return interact(provider, req, res).catch((error) => {
    console.error(error);
    res.statusCode = 400;
    res.end(page('Refused', '<p>this page is no longer valid</p>'));
  });
};

async function revokeGrant(grantId) {
  for (const model of ['AccessToken', 'AuthorizationCode', 'RefreshToken', 'DeviceCode']) await provider[model].revokeByGrantId(grantId);
  await (await provider.Grant.find(grantId))?.destroy();
}

const commands = {
  async revoke_account({ account }) { // as a person does on the provider's own page
    const grants = new Set();
    for (const { kind, value } of issued.filter((one) => one.account === account)) {
      const model = { access_token: 'AccessToken', refresh_token: 'RefreshToken' }[kind];
      const token = model && await provider[model].find(value, { ignoreExpiration: true });
      if (token) grants.add(token.grantId);
    }
    for (const grantId of grants) await revokeGrant(grantId);
    return grants.size;
  },
  async revoke_access({ value }) { // the access token alone
    const token = await provider.AccessToken.find(value);
    await token?.destroy();
    return Boolean(token);
  },
  async down() {
    const gone = new Promise((resolve) => { server.close(resolve); });
    for (const socket of sockets) socket.destroy();
    await gone;
  },
  async up() { server = await listen(port); },
  async fault(one) { state.faults.push({ path: tokenPath, times: 1, ...one }); },
  async held() { return state.held.length; },
  async release() { for (const go of state.held.splice(0)) go(); },
  async access_ttl({ seconds }) { state.accessTtl = seconds; },
  async issued() { return issued; },
  async seen() { return seen; },
};

say({ port, issuer });
for await (const line of { [Symbol.asyncIterator]: () => lines }) {
  const { command, ...rest } = JSON.parse(line);
  try {
    say({ answer: (await commands[command](rest)) ?? null });
  } catch (error) {
    say({ error: String(error) });
  }
}
process.exit(0);
