//! Talks to a running engine without PostgreSQL: `client SOCKET describe PATH…`, `client SOCKET status`,
//! `client SOCKET cache`, `client SOCKET sample PATH ROWS`,
//! `client SOCKET generate DIRECTORY SCALE [ROW_GROUP_ROWS [COMPRESSION [LAYOUT]]]`,
//! `client SOCKET optimize SOURCE TARGET [ROW_GROUP_ROWS [COMPRESSION]]`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a tool for developers: it may end with a panic")]

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    time::Instant,
};

use pystachio_plan::{
    ColumnId, DescribeExtent, FRAME_HEADER_BYTES, FileLayout, FileSet, FrameHeader, FrameKind,
    GenerateRequest, Greeting, OptimizeRequest, Request, Response, SampleRequest, ScanColumn, decode_message,
    encode_message,
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [socket, command, rest @ ..] = arguments.as_slice() else { panic!("client SOCKET COMMAND …") };
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(&Greeting::own("example").encode()).unwrap();
    println!("{:?}", Greeting::read(&mut stream).unwrap());
    let request = match (*command, rest) {
        ("describe", paths) => Request::Describe {
            access: pystachio_plan::StoreAccess::default(),
            tables: paths.iter().map(|path| file_set(path)).collect(),
            extent: DescribeExtent::All,
        },
        ("status", []) => Request::Status,
        ("cache", []) => Request::Cache,
        ("sample", [path, rows]) => sample(&mut stream, path, rows.parse().unwrap()),
        ("generate", [directory, scale, options @ ..]) => Request::Generate(GenerateRequest {
            directory: (*directory).to_owned(),
            scale_factor: scale.parse().unwrap(),
            tables: Vec::new(),
            overwrite: true,
            row_group_rows: options.first().map_or(0, |rows| rows.parse().unwrap()),
            compression: (*options.get(1).unwrap_or(&"auto")).to_owned(),
            layout: if options.get(2) == Some(&"gpu") { FileLayout::Gpu } else { FileLayout::Default },
        }),
        ("optimize", [source, target, options @ ..]) => Request::Optimize(OptimizeRequest {
            source: (*source).to_owned(),
            target: (*target).to_owned(),
            overwrite: true,
            row_group_rows: options.first().map_or(10_000_000, |rows| rows.parse().unwrap()),
            compression: (*options.get(1).unwrap_or(&"auto")).to_owned(),
        }),
        other => panic!("unknown command: {other:?}"),
    };
    let started = Instant::now();
    let mut response = ask(&mut stream, &request);
    while let Response::Progress { name, rows_done, rows_total } = response {
        println!("{name}: {rows_done} of {rows_total}");
        response = receive(&mut stream);
    }
    println!("{response:#?}\n{:?}", started.elapsed());
    let started = Instant::now();
    if *command == "describe" {
        ask(&mut stream, &request);
        println!("again: {:?}", started.elapsed());
    }
}

fn sample(stream: &mut UnixStream, path: &str, row_count: u64) -> Request {
    let describe = Request::Describe {
        tables: vec![file_set(path)],
        extent: DescribeExtent::All,
        access: pystachio_plan::StoreAccess::default(),
    };
    let Response::Described(mut tables) = ask(stream, &describe) else { panic!("no description") };
    let table = tables.remove(0).unwrap();
    let columns = table.columns.iter().zip(0..).filter_map(|(column, id)| {
        Some(ScanColumn {
            id: ColumnId(id),
            name: column.name.clone(),
            data_type: column.data_type.clone()?,
            not_null: column.required,
            length_max: None,
            trim_blanks: false,
            content: column.content(),
            field_id: None,
            within: Vec::new(),
            common: Vec::new(),
        })
    });
    Request::Sample(SampleRequest {
        files: file_set(path),
        columns: columns.collect(),
        row_count,
        seed: 1,
        access: pystachio_plan::StoreAccess::default(),
    })
}

fn file_set(path: &str) -> FileSet {
    FileSet::parquet(vec![path.to_owned()])
}

fn ask(stream: &mut UnixStream, request: &Request) -> Response {
    stream.write_all(&encode_message(request).unwrap()).unwrap();
    receive(stream)
}

fn receive(stream: &mut UnixStream) -> Response {
    let mut header = [0; FRAME_HEADER_BYTES];
    stream.read_exact(&mut header).unwrap();
    let header = FrameHeader::decode(header).unwrap();
    let mut body = vec![0; header.body_bytes];
    stream.read_exact(&mut body).unwrap();
    match header.kind {
        FrameKind::Message => decode_message(&body).unwrap(),
        FrameKind::Schema | FrameKind::Batch => receive(stream),
    }
}
