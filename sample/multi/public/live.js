// Keeps the tables that are marked data-live current. After each event of the
// stream it loads the page again and takes the changed rows from it, so that
// there is one place that writes a row: the template. Without scripts the page
// shows the state at its load.
const pause = 100; // ms between two loads, however many events arrive
const patience = 15000; // ms without a sign of life; the stream has one every 5 s
const parting = 1000; // ms from the end of the use of a row to its load: its button may be pressed next

const { page: address, stream: events } = document.currentScript.dataset; // an action's page has another address

let loading = false;
let again = false;
let kept = false; // a row is not current, because somebody writes in it

async function refresh() {
  again = true;
  if (loading) return;
  loading = true;
  while (again) {
    again = false;
    try {
      const answer = await fetch(address, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(patience) });
      if (!answer.ok) throw answer.status; // the backend of the locks does not answer, for example
      show(new DOMParser().parseFromString(await answer.text(), "text/html"));
      lost.hidden = stream?.readyState === EventSource.OPEN;
    } catch {
      lost.hidden = false;
      if (stream?.readyState === EventSource.OPEN) setTimeout(refresh, 3000); // a new one begins with ready
    }
    await new Promise((done) => setTimeout(done, pause));
  }
  loading = false;
}

function show(page) {
  for (const body of document.querySelectorAll("[data-live]")) {
    const next = page.getElementById(body.id);
    if (next) update(body, next);
  }
  ages();
}

// update makes the rows of body those of next. A row is known by its data-key,
// and stays where it is while somebody writes in it.
function update(body, next) {
  const rows = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const wanted = new Set([...next.rows].map((row) => row.dataset.key));
  for (const [key, row] of rows) if (!wanted.has(key)) row.remove();
  let at = body.firstElementChild;
  for (const fresh of [...next.rows]) {
    const row = rows.get(fresh.dataset.key);
    if (!row) {
      body.insertBefore(fresh, at);
      continue;
    }
    if (row === at) at = at.nextElementSibling;
    if (fresh.dataset.state === row.dataset.state) continue;
    if (row.contains(document.activeElement)) kept = true;
    else row.replaceWith(fresh);
  }
}

// A row that was kept is loaded again when somebody has left it.
document.addEventListener("focusout", () => {
  if (!kept) return;
  kept = false;
  setTimeout(refresh, parting);
});

// ages writes how long ago the instants of the page are.
function ages() {
  for (const time of document.querySelectorAll("time[data-age]")) {
    const seconds = Math.max(0, Math.round((Date.now() - Date.parse(time.dateTime)) / 1000));
    time.textContent = seconds < 120 ? `for ${seconds} s` : `for ${Math.floor(seconds / 60)} min`;
  }
}

// A form is sent once: the second click of a double click, or of an impatient visitor with
// a slow network, would place a second order. The form is pale meanwhile.
const unreported = 10000; // ms until a form can be sent again in a browser that does not report a stop
addEventListener("submit", (event) => {
  if (event.target.getAttribute("aria-busy")) event.preventDefault();
  else if (!window.navigation) setTimeout(free, unreported);
  event.target.setAttribute("aria-busy", "true");
});
addEventListener("pageshow", free); // the visitor came back
window.navigation?.addEventListener("navigateerror", free); // or has stopped the browser

// free lets all forms be sent again.
function free() {
  for (const form of document.querySelectorAll("form[aria-busy]")) form.removeAttribute("aria-busy");
}

const lost = document.getElementById("lost");
let stream = null;
let retry = 0;
let silence = 0;

// listen opens the stream of a visible page. If the stream is lost or silent, the page
// shows that until it is loaded again. The browser connects again. This script does if the
// server refuses the connection, for example during its start, or keeps a dead one, for
// example while it is stopped.
function listen() {
  leave();
  if (document.hidden) return;
  stream = new EventSource(events);
  for (const event of ["order", "product", "locks", "gap", "ready"]) stream.addEventListener(event, refresh);
  for (const event of ["order", "product", "locks", "gap", "ready", "alive"]) stream.addEventListener(event, wait);
  stream.addEventListener("error", () => {
    lost.hidden = false;
    if (stream.readyState !== EventSource.CLOSED) return;
    leave();
    retry = setTimeout(listen, 3000);
  });
  wait();
}

function wait() {
  clearTimeout(silence);
  silence = setTimeout(() => {
    lost.hidden = false;
    listen();
  }, patience);
}

function leave() {
  clearTimeout(retry);
  clearTimeout(silence);
  stream?.close();
  stream = null;
}

// A hidden page has no stream: a browser has six connections to a server, for all of
// its tabs. It is current again when it is seen.
document.addEventListener("visibilitychange", listen);
addEventListener("pagehide", leave);
addEventListener("pageshow", (event) => { if (event.persisted) listen(); });
listen();
setInterval(ages, 1000);
ages();
document.querySelector("[aria-invalid]")?.focus(); // the first wrong field of a refused form
