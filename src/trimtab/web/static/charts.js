// Charts: each figure names its numbers (data-source, data-plot); they are fetched once a source and drawn by uPlot.
// Colours come from the style sheet, so a chart follows the theme.
"use strict";
window.charts = (() => {
  const drawn = new Map();      // figure -> {chart, plot, events, zoomed}
  const DASHED = { allocatable: [6, 5], limit: [4, 4], target: [6, 4] };
  const STEPPED = new Set(["requested", "recommended", "limit", "allocatable"]);
  const TONES = { applied: "--used", applying: "--requested", reverted: "--recommended", killed: "--limit", held: "--allocatable", released: "--allocatable" };
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const ofRole = role => colour({ used: "--used", requested: "--requested", allocatable: "--allocatable", limit: "--limit", recommended: "--recommended", target: "--limit", estimate: "--requested", low: "--band", high: "--band", data: "--used" }[role]);

  const short = n => Math.abs(n) >= 100 ? Math.round(n).toLocaleString("en") : String(+n.toPrecision(3));
  const said = {
    cores: v => v == null ? "–" : v === 0 ? "0" : v < 1 ? `${Math.round(v * 1000)}m` : short(v),
    bytes: v => v == null ? "–" : v === 0 ? "0" : v < 2 ** 30 ? `${Math.round(v / 2 ** 20)}Mi` : `${short(v / 2 ** 30)}Gi`,
  };
  const say = unit => said[unit] || (v => v == null ? "–" : short(v));
  const moment = t => new Date(t * 1000).toLocaleString("en-GB", { timeZone: "UTC", weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

  const byteSplits = (u, axis, min, max) => {
    const wanted = (max - min) / 4, power = 2 ** Math.ceil(Math.log2(wanted || 1)), found = [];
    for (let v = Math.ceil(min / power) * power; v <= max; v += power) found.push(v);
    return found;
  };

  // The end of the y axis. An outlier must not flatten the rest: beyond three times what 98 % of the visible values stay
  // below, the axis is cut, and the note below the chart says so.
  const MEASURED = new Set(["used", "data", "estimate"]), BAND = new Set(["low", "high"]);
  function highest(plot, [first, last]) {
    const within = c => c.values.slice(first ?? 0, (last ?? c.values.length) + 1).filter(v => v != null);
    const values = wanted => plot.curves.filter(c => wanted(c.role)).flatMap(within).sort((a, b) => a - b);
    const measured = values(role => MEASURED.has(role)), observed = values(role => role === "data" || role === "used");
    const most = measured.at(-1) ?? 0, basis = observed.length ? observed : measured;
    const usual = basis[Math.floor((basis.length - 1) * .98)] ?? 0;
    const size = values(role => !MEASURED.has(role) && !BAND.has(role)).at(-1) ?? 0, end = Math.max(size, 3 * usual);
    if (most <= end || !end) return { end: Math.max(most, size), cut: "" };
    const above = measured.filter(v => v > end).length;
    return { end, cut: `${above === 1 ? "One value is" : `${above} values are`} above the chart; the highest is ${withUnit(plot.unit)(most)}.` };
  }
  const withUnit = unit => v => said[unit] || !unit ? say(unit)(v) : `${say(unit)(v)} ${unit}`;

  function series(curve, unit) {
    const role = curve.role, stroke = ofRole(role);
    const look = { label: curve.name, scale: "y", stroke, width: role === "used" ? 1.5 : 2, points: { show: false }, value: (u, v) => v == null ? "–" : withUnit(unit)(v), spanGaps: role === "estimate" || role === "low" || role === "high" };
    if (role === "used") look.fill = colour("--used-fill");
    if (DASHED[role]) { look.dash = DASHED[role]; look.width = 1.5; }
    if (STEPPED.has(role)) look.paths = uPlot.paths.stepped({ align: 1 });
    if (role === "data") { look.paths = () => null; look.points = { show: true, size: 6, fill: stroke }; }
    if (role === "low" || role === "high") look.width = 0;
    return look;
  }

  function drawEvents(figure) {
    const note = figure.querySelector(".mark-note");
    return {
      hooks: {
        draw: u => {
          const { events } = drawn.get(figure), { ctx, bbox } = u, px = devicePixelRatio;
          ctx.save();
          for (const event of events) {
            const x = u.valToPos(event.at, "x", true);
            if (x < bbox.left || x > bbox.left + bbox.width) continue;
            ctx.strokeStyle = ctx.fillStyle = colour(TONES[event.what] || "--allocatable");
            ctx.globalAlpha = .55; ctx.lineWidth = px; ctx.setLineDash([3 * px, 3 * px]);
            ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
            ctx.globalAlpha = 1; ctx.beginPath();
            ctx.moveTo(x - 4 * px, bbox.top); ctx.lineTo(x + 4 * px, bbox.top); ctx.lineTo(x, bbox.top + 7 * px); ctx.fill();
          }
          ctx.restore();
        },
        setCursor: u => {
          const { events } = drawn.get(figure), left = u.cursor.left;
          const near = left < 0 ? null : events.map(e => [Math.abs(u.valToPos(e.at, "x") - left), e]).sort((a, b) => a[0] - b[0])[0];
          note.textContent = near && near[0] < 8 ? `${moment(near[1].at)}: ${near[1].what}. ${near[1].text}` : drawn.get(figure).cut || "\u00a0";
        },
        setScale: (u, key) => {
          if (key !== "x") return;
          const state = drawn.get(figure), x = u.scales.x, all = u.data[0];
          state.zoomed = all.length > 0 && (x.min > all[0] || x.max < all[all.length - 1]);
          for (const [other, its] of drawn)
            if (other !== figure && !its.plot.along && !state.plot.along && other.dataset.source === figure.dataset.source && (its.chart.scales.x.min !== x.min || its.chart.scales.x.max !== x.max))
              its.chart.setScale("x", { min: x.min, max: x.max });
        },
      },
    };
  }

  const plotOf = (figure, plot) => drawn.get(figure)?.plot ?? plot;
  const AXES = { cores: "CPU cores", bytes: "memory", "": "" };

  function options(figure, plot) {
    const canvas = figure.querySelector(".canvas"), grid = { stroke: colour("--line"), width: 1 }, along = plot.along;
    const labelled = label => label ? { label, labelSize: 18, labelFont: "12px system-ui, sans-serif" } : {};
    const ink = { stroke: colour("--soft"), grid, ticks: grid, font: "12px system-ui, sans-serif" };
    const bands = [], roles = plot.curves.map(c => c.role);
    if (roles.includes("high") && roles.includes("low"))
      bands.push({ series: [roles.indexOf("high") + 1, roles.indexOf("low") + 1], fill: colour("--band") });
    return {
      width: Math.max(canvas.clientWidth, 200), height: figure.classList.contains("tall") ? 250 : 190,
      tzDate: at => uPlot.tzDate(new Date(at * 1e3), "Etc/UTC"),
      scales: { x: { time: !along }, y: { range: u => {
        const { end, cut } = highest(plotOf(figure, plot), u.series[0].idxs ?? []);
        const state = drawn.get(figure);
        if (state && state.cut !== cut) { state.cut = cut; figure.querySelector(".mark-note").textContent = cut || "\u00a0"; }
        return [0, (end || 1) * 1.06];
      } } },
      axes: [{ ...ink, ...(along ? labelled(along) : { ...labelled("time (UTC)"), space: 70, values: dates }) }, { ...ink, ...labelled(AXES[plot.unit] ?? plot.unit), size: 58, values: (u, all) => all.map(say(plot.unit)), ...(plot.unit === "bytes" ? { splits: byteSplits } : {}) }],
      series: [{ label: along || "Time (UTC)", value: (u, v) => v == null ? "–" : along ? short(v) : moment(v) }, ...plot.curves.map(c => series(c, plot.unit))],
      bands, cursor: { drag: { x: true, y: false, setScale: true }, focus: { prox: 24 }, points: { size: 6 }, sync: along ? undefined : { key: figure.dataset.source } },
      focus: { alpha: .35 }, legend: { live: true }, plugins: [drawEvents(figure)],
    };
  }

  function dates(u, all) {
    const wide = u.scales.x.max - u.scales.x.min;
    return all.map(t => new Date(t * 1000).toLocaleString("en-GB", { timeZone: "UTC", ...(wide > 2 * 86400 ? { weekday: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit" }), ...(wide > 2 * 86400 && t % 86400 ? { hour: "2-digit", minute: "2-digit", weekday: undefined, day: undefined } : {}) }));
  }

  const columns = plot => [plot.times, ...plot.curves.map(c => c.values)];

  function draw(figure, plot, events) {
    const canvas = figure.querySelector(".canvas"), old = drawn.get(figure);
    canvas.hidden = !old && !plot.times.length;
    if (!old) figure.querySelector(".mark-note").textContent = canvas.hidden ? "No data yet." : "\u00a0";
    if (canvas.hidden) return;
    const same = old && old.plot.curves.map(c => c.role + c.name).join() === plot.curves.map(c => c.role + c.name).join();
    if (same) {
      Object.assign(old, { plot, events });
      old.chart.setData(columns(plot), !old.zoomed);
      if (old.zoomed) old.chart.redraw();
      return;
    }
    old?.chart.destroy();
    const state = { plot, events, zoomed: false, chart: null, cut: "" };
    drawn.set(figure, state);
    state.chart = new uPlot(options(figure, plot), columns(plot), canvas);
  }

  async function load() {
    const sources = new Map();
    for (const figure of document.querySelectorAll("figure[data-source]")) {
      const source = figure.dataset.source;
      sources.set(source, [...(sources.get(source) || []), figure]);
    }
    for (const [source, figures] of sources) {
      const answer = await fetch(source, { headers: { "HX-Request": "true" } });
      if (!answer.ok) {
        const words = await answer.text();
        for (const figure of figures) figure.querySelector(".mark-note").textContent = words;
        continue;
      }
      const { plots, events } = await answer.json();
      for (const figure of figures) {
        const plot = plots[figure.dataset.plot];
        if (plot) draw(figure, { along: "", times: [], curves: [], ...plot }, plot.along ? [] : events);
      }
    }
    document.documentElement.dataset.charts = String(drawn.size);
  }

  function redraw() {
    for (const [figure, state] of drawn) {
      state.chart.destroy();
      state.chart = new uPlot(options(figure, state.plot), columns(state.plot), figure.querySelector(".canvas"));
    }
  }

  function zoom(chart, factor, shift = 0) {
    const all = chart.data[0], { min, max } = chart.scales.x;
    if (!all.length) return;
    const middle = (min + max) / 2 + shift * (max - min), half = (max - min) / 2 * factor;
    chart.setScale("x", { min: Math.max(all[0], middle - half), max: Math.min(all[all.length - 1], middle + half) });
  }

  document.addEventListener("keydown", event => {
    const figure = event.target.closest?.(".canvas")?.parentElement, state = drawn.get(figure);
    if (!state) return;
    const act = { "+": [.5], "=": [.5], "-": [2], ArrowLeft: [1, -.25], ArrowRight: [1, .25] }[event.key];
    if (act) zoom(state.chart, ...act);
    else if (event.key === "0") zoom(state.chart, 1e9);
    else return;
    event.preventDefault();
  });
  document.addEventListener("click", event => {
    const button = event.target.closest("[data-zoom]");
    if (!button) return;
    const hours = Number(button.dataset.zoom);
    for (const state of drawn.values()) {
      const all = state.chart.data[0], last = all[all.length - 1];
      if (all.length) state.chart.setScale("x", { min: hours ? Math.max(all[0], last - hours * 3600) : all[0], max: last });
    }
    for (const each of document.querySelectorAll("[data-zoom]")) each.setAttribute("aria-pressed", String(each.dataset.zoom === button.dataset.zoom));
  });
  new ResizeObserver(() => {
    for (const [figure, state] of drawn) {
      const width = figure.querySelector(".canvas").clientWidth;
      if (Math.abs(width - state.chart.width) > 1) state.chart.setSize({ width, height: state.chart.height });
    }
  }).observe(document.body);
  const ends = () => [...drawn.values()].map(({ chart }) => chart.scales.y.max);
  return { load, redraw, ends };
})();
