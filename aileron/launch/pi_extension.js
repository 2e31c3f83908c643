// What pi loads when Aileron starts it: registers the server and, where there is a gateway, its address. Writes nothing.
// Reads AILERON_PI (pi.py says what is in it) and, for a key that the vault has, AILERON_SESSION_TOKEN.

export default function (pi) {
  const told = JSON.parse(process.env.AILERON_PI ?? "null");
  if (told === null) return;
  pi.registerMcpServer(told.name, told.server);
  for (const [provider, { baseUrl, keyFromToken }] of Object.entries(told.providers)) {
    const token = process.env.AILERON_SESSION_TOKEN;
    // As a header too: a key that pi has stored counts for more than one that an extension gives.
    const header = provider === "anthropic" ? { "x-api-key": token } : { Authorization: `Bearer ${token}` };
    pi.registerProvider(provider, keyFromToken ? { baseUrl, apiKey: token, headers: header } : { baseUrl });
  }
}
