
(() => { // passkeys: what this browser is asked for, put into forms of this page
  const can = window.PublicKeyCredential !== undefined && location.hostname === "localhost"; // the relying party's only name
  for (const one of document.querySelectorAll(can ? "[data-passkey], [data-passkeys]" : "[data-no-passkeys]")) one.hidden = false;
  if (!can) return;
  document.body.dataset.passkeys = ""; // for what is put into the page later
  let isBusy = false;

  const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer)))
    .replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const bytes = (said) => Uint8Array.from(atob(said.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  const known = (all) => all.map((one) => ({ ...one, id: bytes(one.id) }));
  const put = (form, fields) => {
    for (const [name, value] of Object.entries(fields)) {
      const field = form.querySelector(`input[name="${name}"]`) || form.appendChild(document.createElement("input"));
      Object.assign(field, { type: "hidden", name, value });
    }
  };
  const tell = (form, said) => {
    let place = form.querySelector(".told");
    if (!place) {
      place = form.appendChild(document.createElement("p"));
      place.className = "told note alarm";
      place.setAttribute("role", "alert");
    }
    place.textContent = `! ${said}`;
  };
  const ask = async (path, fields) => { // what is refused is a page, as for every form
    const answer = await fetch(path, { method: "POST", body: new URLSearchParams(fields), credentials: "same-origin" });
    if ((answer.headers.get("Content-Type") || "").startsWith("application/json")) return answer.json();
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const why = page.querySelector(".note.alarm");
    throw new Error(why ? why.textContent.trim().replace(/^! /, "") : `The daemon answers ${answer.status}.`);
  };
  const sign = async ({ publicKey }) => {
    const asked = { ...publicKey, challenge: bytes(publicKey.challenge), allowCredentials: known(publicKey.allowCredentials) };
    const { response } = await navigator.credentials.get({ publicKey: asked });
    return [response.signature, response.authenticatorData, response.clientDataJSON].map(text).join(".");
  };

  const decide = async (form, button) => {
    if (!form.reportValidity()) return;
    const told = await ask(form.dataset.challenge, new FormData(form)); // made now: it is good for five minutes
    const one = told.statements.find((each) => each.key_id === button.dataset.passkey);
    if (!one) throw new Error("This passkey cannot decide any more. Load this page again.");
    put(form, { at: told.at, key_id: one.key_id, signature: await sign(one) });
    form.submit();
  };
  const unlock = async (form, button) => {
    const told = button.told || await ask("/approvals/passkeys/unlocking", {});
    const one = button.one || (told.statements.length === 1 ? told.statements[0] : null);
    if (one) {
      put(form, { nonce: told.nonce, at: told.at, key_id: one.key_id, signature: await sign(one) });
      form.submit();
      return;
    }
    if (!told.statements.length) throw new Error("No passkey can be used here. Load this page again.");
    button.hidden = true;
    for (const each of told.statements) { // the person knows which one they have with them
      const choice = button.cloneNode();
      choice.hidden = false;
      choice.removeAttribute("aria-busy");
      choice.textContent = `Unlock with ${each.name}`;
      Object.assign(choice, { told, one: each });
      button.before(choice);
    }
  };
  // What a decision will name: of the credential id and the key, as the authenticator wrote them (Web Authentication, 6.5.1)
  const CREDENTIAL = 53; // after the relying party, flags, count and model
  const after = (data, at) => { // where an item of CBOR ends; keys have numbers, bytes and one map
    const kind = data[at] >> 5, low = data[at] & 31;
    if (kind > 5 || kind === 4 || low > 25) throw new Error("This passkey's key cannot be read.");
    const [size, next] = low < 24 ? [low, at + 1] : low === 24 ? [data[at + 1], at + 2]
      : [(data[at + 1] << 8) | data[at + 2], at + 3];
    if (kind < 2) return next;
    if (kind < 4) return next + size;
    let end = next;
    for (let left = 2 * size; left > 0; left -= 1) end = after(data, end);
    return end;
  };
  const named = async (data) => {
    const key = CREDENTIAL + 2 + ((data[CREDENTIAL] << 8) | data[CREDENTIAL + 1]);
    const digest = await crypto.subtle.digest("SHA-256", data.slice(CREDENTIAL, after(data, key)));
    const hex = [...new Uint8Array(digest).slice(0, 16)].map((byte) => byte.toString(16).padStart(2, "0"));
    return `webauthn:${hex.join("")}`;
  };
  const add = async (form) => {
    if (!form.reportValidity()) return;
    const { publicKey } = await ask("/approvals/passkeys/options", new FormData(form));
    const made = await navigator.credentials.create({ publicKey: {
      ...publicKey,
      challenge: bytes(publicKey.challenge),
      user: { ...publicKey.user, id: bytes(publicKey.user.id) },
      excludeCredentials: known(publicKey.excludeCredentials),
    } });
    put(form, {
      made: await named(new Uint8Array(made.response.getAuthenticatorData())),
      client_data: text(made.response.clientDataJSON),
      attestation: text(made.response.attestationObject),
      transports: made.response.getTransports ? made.response.getTransports().join(" ") : "",
    });
    form.submit();
  };

  const why = (error) => error.name === "NotAllowedError"
    ? "The passkey was not used: it was cancelled, or the device could not verify you. Nothing was done."
    : error.name === "InvalidStateError" ? "This device already has a passkey for this home." : error.message;
  const begin = async (button) => {
    const form = button.form;
    if (isBusy) return;
    isBusy = true;
    button.setAttribute("aria-busy", "true");
    try {
      await { decide, unlock, add }[form.dataset.does](form, button);
    } catch (error) {
      tell(form, why(error));
    }
    button.removeAttribute("aria-busy");
    isBusy = false;
  };
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element && event.target.closest("button[data-passkey]");
    if (button && !event.defaultPrevented) begin(button);
  });
  document.addEventListener("submit", (event) => { // Enter, where nothing but a passkey can send it
    const form = event.target;
    if (event.defaultPrevented || !form.dataset.does || form.querySelector("button:not([type=button])")) return;
    event.preventDefault();
    const all = form.querySelectorAll("button[data-passkey]");
    if (all.length === 1) begin(all[0]);
  });
})();
