// Keeps the pages of locks, messages and limits current. The server writes all of a page:
// after an event of the stream, the elements marked data-live are taken from the
// page as it is now, and after a form marked data-stay, those of its section that
// are marked data-outcome are taken from its answer. Without scripts, forms load the page anew.
const pause = 100; // ms between two loads, however many events arrive
const patience = 15000; // ms without a sign of life; the stream has one every 5 s
const root = document.querySelector("[data-stream]"); // an action's page has another address than data-page

let loading = false;
let again = false;

async function refresh() {
  again = true;
  if (loading) return;
  loading = true;
  while (again) {
    again = false;
    try {
      const answer = await fetch(root.dataset.page, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(patience) });
      if (answer.ok) take(await answer.text(), live());
    } catch {
      // The server is gone, or silent. The stream connects again, and begins with an event.
    }
    await new Promise((done) => setTimeout(done, pause));
  }
  loading = false;
}

const live = () => document.querySelectorAll("[data-live]");

// take replaces the content of elements by that of another version of the page.
function take(text, elements) {
  const page = new DOMParser().parseFromString(text, "text/html");
  for (const element of elements) {
    const next = page.getElementById(element.id);
    if (next && next.innerHTML !== element.innerHTML) element.replaceChildren(...next.childNodes);
  }
  return page;
}

for (const form of document.querySelectorAll("form[data-stay]")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (form.getAttribute("aria-busy")) return;
    const body = new URLSearchParams(new FormData(form, event.submitter));
    form.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(form.action, { method: "POST", body, headers: { Accept: "text/html" } });
      const own = form.closest("section").querySelectorAll("[data-outcome]");
      const page = take(await answer.text(), [...own, ...live(), document.getElementById("notice")]);
      if (!page.querySelector("[data-stream]")) notice((page.querySelector("[role=alert]") ?? page.querySelector("h1")).textContent); // an error
    } catch {
      notice(root.dataset.lost); // the process that was to answer is gone
    }
    form.removeAttribute("aria-busy");
    document.getElementById("running")?.setAttribute("hidden", "");
  });
}

function notice(text) {
  const p = document.createElement("p");
  p.className = "notice bad";
  p.textContent = text;
  document.getElementById("notice").replaceChildren(p);
}

// race shows the progress of a race, in whichever process it is.
function race(state) {
  document.getElementById("running").hidden = state.waiting + state.working === 0;
  const limits = { waiting: state.buyers, working: state.buyers, sold: state.pieces, oversold: state.buyers - state.pieces };
  for (const [name, max] of Object.entries(limits)) {
    const meter = document.getElementById("m-" + name);
    meter.max = max;
    meter.value = state[name];
    document.getElementById("n-" + name).textContent = `${state[name]} / ${max}`;
  }
  const racers = document.getElementById("racers");
  racers.replaceChildren(...state.processes.map((process) => racer(process, racers.dataset.worker)));
}

// racer returns the bar of the buyers of a process that are done. It is marked
// while one of them works.
function racer({ worker, pid, buyers, working, done }, nameOf) {
  const row = document.createElement("p");
  row.className = working ? "works" : "";
  const name = document.createElement("span");
  name.textContent = (worker ? nameOf.replace("#", worker) + ", " : "") + `pid ${pid}`;
  const meter = document.createElement("meter");
  meter.max = buyers;
  meter.value = done;
  meter.setAttribute("aria-label", name.textContent);
  const count = document.createElement("span");
  count.textContent = `${done} / ${buyers}`;
  row.append(name, " ", meter, " ", count);
  return row;
}

// note adds an event to the list, the newest first.
function note(n) {
  const list = document.getElementById("notes");
  const entry = document.createElement("li");
  const at = document.createElement("time");
  at.className = "small";
  at.dateTime = n.at;
  at.textContent = `${n.at.slice(11, 23)} UTC`;
  const text = document.createElement("strong");
  text.dir = "auto";
  text.textContent = n.text;
  const from = document.createElement("span");
  from.className = "small";
  from.textContent = `${list.dataset.from} ${n.pid}`;
  entry.append(at, " ", text, " ", from);
  list.prepend(entry);
  while (list.children.length > 10) list.lastElementChild.remove();
}

// The events of the stream, with their handlers.
const events = {
  changed: refresh,
  job: refresh,
  gap: refresh,
  race,
  note,
  left({ millis }) {
    const meter = document.getElementById("left");
    if (meter) meter.value = millis;
    const text = document.getElementById("left-text");
    if (text) text.textContent = `${millis} ms`;
  },
  alive() {},
  ready({ pid }) {
    const state = document.getElementById("stream-state");
    if (state) state.textContent = `${state.dataset.liveText} ${pid}`;
    refresh();
  },
};

const lost = document.getElementById("lost");
let stream = null;
let retry = 0;
let silence = 0;

// listen opens the stream of a visible page. While the stream is lost or silent, the
// page shows that. The browser connects again. This script does if the server refuses
// the connection, for example during its start, or keeps a dead one, for example while
// it is stopped. A new connection alone is no sign of life: it also ends at once while the
// backend of the locks does not answer.
function listen() {
  leave();
  if (document.hidden) return;
  stream = new EventSource(root.dataset.stream);
  for (const [event, handle] of Object.entries(events)) {
    stream.addEventListener(event, (e) => {
      hear();
      handle(e.data && JSON.parse(e.data));
    });
  }
  stream.addEventListener("open", () => (root.dataset.open = ""));
  stream.addEventListener("error", () => {
    lost.hidden = false;
    if (stream.readyState !== EventSource.CLOSED) return;
    leave();
    retry = setTimeout(listen, 3000);
  });
  wait();
}

function hear() {
  lost.hidden = true;
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
