// Keeps the tables of locks and orders current. Without scripts the page shows
// what was there when it was loaded.
const table = document.getElementById("locks");
const release = document.getElementById("release");

function cell(name, text, kind) {
  const td = document.createElement(name);
  td.textContent = text;
  if (kind) td.className = kind;
  return td;
}

function line(lock) {
  const tr = document.createElement("tr");
  tr.dataset.key = lock.key;
  const key = cell("th", lock.key);
  key.scope = "row";
  const form = document.createElement("td");
  form.append(release.content.cloneNode(true));
  form.querySelector("[name=key]").value = lock.key;
  tr.append(key, cell("td", lock.holders.join(", ")), cell("td", lock.waiting, "number"), form);
  return tr;
}

// A row in which somebody is writing a reason stays as long as its lock does.
function show(locks) {
  const writing = document.activeElement?.closest("#locks tr");
  const rows = locks.map((lock) => (writing?.dataset.key === lock.key ? writing : line(lock)));
  if (rows.length === 0) {
    const none = document.createElement("tr");
    const td = cell("td", "Nobody holds one.");
    td.colSpan = 4;
    none.append(td);
    rows.push(none);
  }
  table.replaceChildren(...rows);
}

new EventSource("/locks/live").addEventListener("locks", (event) => show(JSON.parse(event.data)));

const placed = document.getElementById("placed");
const refund = document.getElementById("refund");

// An order appears in the moment in which it is made. The server's list has it,
// too, so that one which came while the page was loading is there only once.
function add(order) {
  if (placed.querySelector(`[name=order][value="${order.id}"]`)) return;
  placed.querySelector("[colspan]")?.closest("tr").remove();
  const tr = document.createElement("tr");
  const id = cell("th", order.id, "number");
  id.scope = "row";
  const form = document.createElement("td");
  form.append(refund.content.cloneNode(true));
  form.querySelector("[name=order]").value = order.id;
  form.querySelector("[name=order]").setAttribute("value", order.id);
  form.querySelector(".hidden").textContent = ` order ${order.id}`;
  const at = order.at.replace("T", " ").slice(0, 19) + " UTC";
  tr.append(id, cell("td", order.product), cell("td", order.quantity, "number"), cell("td", at), form);
  placed.prepend(tr);
}

new EventSource("/orders/live").addEventListener("order", (event) => add(JSON.parse(event.data)));
